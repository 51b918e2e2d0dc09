"""Rules about one file at a time: its size, what it may not say, and the test beside it."""

import pathlib
import re

from tidy.sources import folder_of, is_test, line_of


def findings(tree, tables):
    for path in tree.cpp:
        yield from ((path, line, message) for line, message in size_findings(tree.text(path), tables))
        if folder_of(path):
            yield from ((path, line, message) for line, message in banned_findings(tree, path, tables))
            yield from ((path, 1, message) for message in untested(tree, path, tables))
        yield from ((path, line, message) for line, message in first_include_findings(tree, path))
    yield from stale_exceptions(tree, tables)
    yield from corpus_findings(tree)


def size_findings(text: str, tables):
    lines = text.splitlines()
    if len(lines) > tables.FILE_LINES_MAX:
        yield 1, f"{len(lines)} lines; the limit is {tables.FILE_LINES_MAX}"
    for number, line in enumerate(lines, 1):
        if len(line) > tables.LINE_COLUMNS_MAX:
            yield number, f"longer than {tables.LINE_COLUMNS_MAX} columns"


def banned_findings(tree, path: str, tables):
    code, folder = tree.code(path), folder_of(path)
    if "cuda" not in path.split("/"):
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            if tables.VENDOR.match(line):
                yield number, "vendor headers stay under a cuda/ folder"
    if folder in tables.REPLAYABLE and not is_test(path):
        for match in tables.SPOILERS.finditer(code):
            yield line_of(code, match.start()), f"{match[0]!r} in replayable code"
    for pattern, advice in tables.BANNED.items():
        for match in re.finditer(pattern, code):
            yield line_of(code, match.start()), f"{match[0]!r} is banned: {advice}"


def untested(tree, path: str, tables):
    source = pathlib.PurePath(path)
    if source.suffix != ".cc" or is_test(path):
        return
    # A backend's kernel (ops/cpu/x.cc) is tested beside the operation (ops/x_test.cc).
    folder = folder_of(path)
    beside = source.parent.parent if folder == "ops" and source.parent.name in {"cpu", "cuda"} else source.parent
    excepted = {"/".join(source.parts[-2:]), f"{folder}/"} & tables.TESTED_BY.keys()
    if not excepted and str(beside / f"{source.stem}_test.cc") not in tree.tags_of:
        yield f"no {source.stem}_test.cc beside it"


def first_include_findings(tree, path: str):
    """A source includes its own header first, which shows that the header compiles alone. Headers without a
    source of their name are compiled by the target `headers` (cmake/heddle_headers.cmake)."""
    source = pathlib.PurePath(path)
    if source.suffix != ".cc" or not path.startswith("src/"):
        return
    own = source.with_suffix(".h")
    if is_test(path) and str(own) not in tree.tags_of and str(source.parent / f"{source.stem[:-5]}.cc") not in tree.tags_of:
        own = source.parent / f"{source.stem[:-5]}.h"
    if str(own) not in tree.tags_of:
        return
    first = re.search(r'^#\s*include\s+["<]([^">]+)', tree.text(path), re.M)
    if first is None or first[1] != str(own).removeprefix("src/"):
        line = line_of(tree.text(path), first.start()) if first else 1
        yield line, f"its own header, {str(own).removeprefix('src/')}, comes first"


def stale_exceptions(tree, tables):
    ends = {"/".join(path.split("/")[-2:]) for path in tree.cpp} | {folder_of(path) + "/" for path in tree.cpp}
    for name in sorted(tables.TESTED_BY.keys() - ends):
        yield "tools/tidy/tables.py", 1, f"TESTED_BY names {name}, which is not there"


def corpus_findings(tree):
    corpora = {path.split("/")[2] for path in tree.committed if path.startswith("fuzz/corpus/")}
    for path in tree.cpp:
        target = re.fullmatch(r"fuzz/fuzz_(\w+)\.cc", path)
        if target and target[1] not in corpora:
            yield path, 1, f"no committed inputs in fuzz/corpus/{target[1]}"
