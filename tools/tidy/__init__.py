"""The house rules that compilers and clang-tidy do not check. `main` is what tools/tidy.py runs."""

import argparse
import pathlib
import sys

from tidy import calls, citations, classes, coroutines, files, functions, layers, live, prose, tables, words
from tidy.sources import Tree

RULES = (files, layers, live, coroutines, functions, classes, calls, citations, prose, words)


def findings(tree: Tree):
    """Of every rule in turn: (path below the root, line, message)."""
    for rule in RULES:
        yield from rule.findings(tree, tables)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tidy.py", description=__doc__)
    parser.add_argument("root", nargs="?", default=".", help="the checkout (default: where you are)")
    parser.add_argument("--calls", metavar="FOLDER", help="print which files of FOLDER call which, those that call nothing first")
    parser.add_argument("--pages", action="store_true", help="print the table of pages that are not yet within the limits of prose")
    given = parser.parse_args(arguments)
    tree = Tree(pathlib.Path(given.root))
    if given.calls:
        graph = calls.graph_of(tree, given.calls)
        print(calls.described(graph))
        return 1 if any(len(group) > 1 for group in graph.groups()) else 0
    if given.pages:
        print(prose.table_of(tree))
        return 0
    count = 0
    for path, line, message in findings(tree):
        print(f"{path}:{line}: {message}", file=sys.stdout)
        count += 1
    return 1 if count else 0
