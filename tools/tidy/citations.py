"""Documents that code cites are there: pages of docs/, and decisions by their number."""

import re

_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".py", ".rs", ".cmake", ".txt", ".sh", ".proto", ".yaml", ".json", ".js", ".mjs", ".in", ".service")
_FILES = {"dev", ".ci/run"}
_CITED = re.compile(r"\bdocs/[\w/.-]+\.md\b|\bdecisions/(?P<file>\d{4})|\bdecision (?P<number>\d{1,4})\b")


def findings(tree, tables):
    documents = {path for path in tree.committed if path.startswith("docs/")}
    decisions = {int(match[1]) for path in documents if (match := re.match(r"docs/decisions/(\d{4})-", path))}
    for path in tree.committed:
        if path in _FILES or path.endswith(_SUFFIXES):
            if not path.startswith(("docs/", "tests/tools/", "build/", "fuzz/corpus/", "tests/golden/", "tests/text/goldens/")):
                yield from ((path, line, message) for line, message in cited(tree.text(path), documents, decisions))


def cited(text: str, documents: set, decisions: set):
    for number, line in enumerate(text.splitlines(), 1):
        for match in _CITED.finditer(line):
            decision = match["file"] or match["number"]
            if decision and int(decision) not in decisions:
                yield number, f"there is no decision {int(decision)} in docs/decisions/"
            elif not decision and match[0] not in documents:
                yield number, f"there is no {match[0]}"
