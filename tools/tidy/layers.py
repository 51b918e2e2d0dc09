"""Which folder of src/ includes which: exactly what the table LAYERS says, and each of them lower than its user."""

import collections
import re

from tidy.sources import folder_of, is_test, line_of

_INCLUDE = re.compile(r'^#\s*include "([a-z_]+)/', re.M)
# Tests of what runs on GPUs use the emulated driver, which lies in tests/.
_BESIDE_SRC = {"cuda_emulator"}


def findings(tree, tables):
    used = collections.defaultdict(set)
    for path in tree.cpp:
        folder = folder_of(path)
        for match in _INCLUDE.finditer(tree.text(path)) if folder else ():
            used[folder].add(match[1])
            allowed = {folder, "base", *tables.LAYERS.get(folder, ()), *(_BESIDE_SRC if is_test(path) else ())}
            if match[1] not in allowed:
                yield path, line_of(tree.text(path), match.start()), f"{folder}/ may not include {match[1]}/"
    folders = {folder_of(path) for path in tree.cpp} - {""}
    yield from table_findings(tables.LAYERS, folders, used)


def table_findings(layers: dict, folders: set, used: dict):
    """What the table says and nobody needs, leaves out, or says in a circle."""
    table = "tools/tidy/tables.py"
    for folder in sorted(layers.keys() - folders):
        yield table, 1, f"LAYERS has {folder}, and there is no src/{folder}/"
    for folder in sorted(folders - layers.keys()):
        yield table, 1, f"LAYERS does not have {folder}"
    for folder, below in sorted(layers.items()):
        for unused in sorted(set(below) - used.get(folder, set())) if folder in folders else ():
            yield table, 1, f"LAYERS lets {folder} include {unused}, which no file does"
    rank: dict[str, int] = {}
    while True:
        ready = [folder for folder in layers if folder not in rank and all(b in rank or b not in layers for b in layers[folder])]
        if not ready:
            break
        rank.update((folder, len(rank)) for folder in ready)
    if len(rank) < len(layers):
        yield table, 1, "LAYERS has a circle among " + ", ".join(sorted(layers.keys() - rank.keys()))
