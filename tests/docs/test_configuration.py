"""The page of the configuration names every key that the program takes, with its true default."""

import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "schema/heddle.schema.json").read_text())
PAGES = {"configuration": "docs/guide/configuration.md", "lab": "docs/guide/lab.md"}
# The part of the schema, and the sections of the pages that have its keys.
PLACES = {
    "": ["configuration: The file", "configuration: For the whole file", "configuration: Names that stand for models"],
    "devices": ["configuration: Devices", "lab: Devices that act"],
    "models": ["configuration: Models", "configuration: External engines"],
    "planner": ["configuration: Planner", "lab: Switches of the planner"],
    "limits": ["configuration: Limits"],
    "batches": ["configuration: Batches"],
    "peers": ["configuration: Peers"],
    "apiKeys": ["configuration: Keys, hosts and origins"],
    "cluster": ["configuration: Cluster"],
    "tracing": ["configuration: Tracing"],
    "selectors": ["configuration: Of a selector"],
    "profiles": ["configuration: Of a profile"],
}
# Defaults that the schema cannot say, as they follow from something else.
SAID_OTHERWISE = {"devices.gpu", "apiKeys.priority", "models.sendLoadingState"}
UNITS = {"ms": "ms", "s": "s", "min": "m", "h": "h"}
STRUCTS = {"DeviceConfig": "devices", "PlannerConfig": "planner", "ModelConfig": "models", "EngineConfig": "models",
           "Limits": "limits", "BatchesConfig": "batches", "Config": "", "HostConfig": "host"}


def rows_of(place):
    """(names of the first cell, the row's cells) of each row of the tables in a section, its subsections included."""
    page, title = place.split(": ")
    text = (ROOT / PAGES[page]).read_text()
    section = re.search(rf"^(##+) {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert section, f"{PAGES[page]} has no section {title}"
    for line in section[2].splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and "`" in cells[0]:
            yield re.findall(r"`([^`]+)`", cells[0]), cells


ROWS = {part: [row for place in places for row in rows_of(place)] for part, places in PLACES.items()}
WHOLE = (ROOT / PAGES["configuration"]).read_text()


def keys_of(schema, path=""):
    """(path, schema) of every key below, those of lists and of maps with free names included."""
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from keys_of(inner, path)
    for inner in schema.get("anyOf", []):
        yield from keys_of(inner, path)
    for name, inner in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, inner
        yield from keys_of(inner, here)


def row_of(path):
    """The row that has the key: under its own name, under a dotted one, or told in its parent's row."""
    parts = path.split(".")
    part = parts[0] if parts[0] in PLACES and len(parts) > 1 else ""
    dotted = ".".join(parts[1:] if part else parts)
    own, parent = dotted.split(".")[-1], dotted.rpartition(".")[0]
    for names, cells in ROWS[part]:
        if dotted in names:
            return cells
        if parent and parent in names and f"`{own}`" in " ".join(cells[1:]):
            return cells
    return None


KEYS = {path: schema for path, schema in keys_of(SCHEMA)}


@pytest.mark.parametrize("path", KEYS)
def test_every_key_is_on_the_page(path):
    if path.startswith("routing.router.settings"):
        assert "routing.router.settings" in WHOLE
    elif "without effect" in KEYS[path].get("description", ""):
        assert f"`{path.split('.')[-1]}`" in WHOLE or f"`{path}`" in WHOLE
    elif "properties" in KEYS[path] and path not in PLACES:
        assert any(row_of(key) for key in KEYS if key.startswith(path + "."))
    else:
        assert row_of(path), f"no row for {path}"


@pytest.mark.parametrize("path", [path for path, schema in KEYS.items() if "default" in schema])
def test_defaults_of_the_schema_are_those_of_the_page(path):
    row = row_of(path)
    if path in SAID_OTHERWISE or path.startswith("routing.router.settings") or row is None:
        return
    default = KEYS[path]["default"]
    told = str(default).lower() if isinstance(default, bool) else str(default)
    assert f"`{told}`" in " ".join(row[1:]), f"{path}: the default is {told}, the page says {row[1]}"


def fields_with_times():
    """(path, default as the page writes it) of the times in the structs that the parser fills."""
    for file in ("src/config/config.h", "src/config/engine_config.h"):
        text = (ROOT / file).read_text()
        for struct, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S):
            for name, number, unit in re.findall(r"Duration (\w+) = (\d+)(ms|s|min|h);", body):
                path = ".".join(filter(None, [STRUCTS.get(struct), name]))
                if struct in STRUCTS and path in KEYS:
                    yield path, number + UNITS[unit]


@pytest.mark.parametrize(("path", "default"), fields_with_times())
def test_times_of_the_code_are_those_of_the_page(path, default):
    assert f"`{default}`" in row_of(path)[1]
