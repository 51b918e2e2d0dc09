"""The words of the glossary (docs/architecture.md, "Words") instead of others for the same things.

A word counts wherever it stands: in prose, in a name such as `words_of` or `WordsOf`, in a string. Names of tests keep
their words, so that their history does not end. So does a line that says "old name": what users may have keeps working.
"""

import pathlib
import re

# What is not said, as a pattern of whole words in lower case, and what is said instead.
BETTER = {
    r"foreign": "external",
    r"engines? that (?:is|are) not ours|engines? of somebody else's": "external engine",
    r"recordings?": "CUDA graph",
    r"cut over|add cut": "sharded",
    r"errands?": "blocking pool",
    r"hasten(?:s|ed|ing)?": "prioritise",
    r"detour(?:s|ed)?|relay(?:s|ed)?": "peer-assisted load",
    r"mak(?:es?|ing) way|made way": "victim; is evicted; is suspended",
    r"story|stories": "request trace",
    r"deeds?": "action",
    r"hopeless": "exhausted",
    r"laps": "phase timer",
}
_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc", ".proto", ".py", ".sh", ".md", ".txt", ".cmake", ".yaml", ".json", ".js", ".mjs",
             ".html", ".css", ".service"}
_FILES = {"dev", ".ci/run"}
# Data, the texts of others, measurements and decisions of their day, and this rule.
_SKIPPED = ("LICENSE", "build/", "rust/", "data/", "bench/results/", "docs/decisions/", "docs/reproduction", "docs/simulator/",
            "fuzz/corpus/", "tests/golden/", "tests/text/", "tests/engines/package-lock.json", "tools/tidy/", "tests/tools/")
_TESTS = re.compile(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*\w+,\s*\w+\)|\bINSTANTIATE_TEST_SUITE_P\(\s*\w+,\s*\w+|\bdef test_\w+|\b\w+Test\b")
_OLD_NAME = re.compile(r"\bold names?\b", re.I)
_EACH = {better: re.compile(rf"(?<![a-z])(?:{pattern})(?![a-z])") for pattern, better in BETTER.items()}


def findings(tree, tables):
    used = set()
    for path in tree.committed:
        if not path.startswith(_SKIPPED) and (path in _FILES or pathlib.PurePath(path).suffix in _SUFFIXES):
            for line, word, better in said(tree.text(path)):
                allowed = next((key for key in tables.WORDS if path.startswith(key[0]) and word == key[1]), None)
                if allowed:
                    used.add(allowed)
                else:
                    yield path, line, f'"{word}": the glossary says {better}'
    for path, word in sorted(tables.WORDS.keys() - used):
        yield "tools/tidy/tables.py", 1, f'WORDS allows "{word}" in {path}, which does not say it'


def said(text: str):
    """(line, word, what is said instead) of each word of BETTER."""
    for number, line in enumerate(text.split("\n"), 1):
        if not _OLD_NAME.search(line):
            plain = " ".join(apart(_TESTS.sub(" ", line)).split())
            for better, pattern in _EACH.items():
                yield from ((number, match[0], better) for match in pattern.finditer(plain))


def apart(line: str) -> str:
    """The line in lower case, with the words of its names apart."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", line).lower()
