"""All that pip asks for before it keeps an archive: its metadata, which lie in it."""

import pathlib


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    metadata = pathlib.Path("PKG-INFO").read_text()
    name = next(line.removeprefix("Name: ") for line in metadata.splitlines() if line.startswith("Name: "))
    target = pathlib.Path(directory, f"{name}-0.dist-info")
    target.mkdir()
    (target / "METADATA").write_text(metadata)
    return target.name
