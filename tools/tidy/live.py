"""What src/policy/ decides it decides for the system that serves: code that serves includes each of its headers,
directly or by way of other policies. What only a simulator, an experiment or a benchmark asks lies beside its user."""

import re

from tidy.sources import folder_of, is_test

_INCLUDE = re.compile(r'^#\s*include "(policy/[\w/]+\.h)"', re.M)


def findings(tree, tables):
    reached: set[str] = set()
    found = [path for path in tree.cpp if serves(path, tables.NOT_SERVING)]
    while found:
        for match in _INCLUDE.finditer(tree.text(found.pop())):
            header = f"src/{match[1]}"
            if header not in reached:
                reached.add(header)
                found += [path for path in (header, header.removesuffix(".h") + ".cc") if path in tree.cpp]
    for path in tree.cpp:
        if folder_of(path) == "policy" and path.endswith(".h") and path not in reached:
            yield path, 1, "no code that serves includes it; what only simulations or experiments ask lies beside them"


def serves(path: str, not_serving: set) -> bool:
    """Whether the system runs the file when it serves. Helpers of tests are called test_x."""
    folder = folder_of(path)
    return bool(folder) and folder != "policy" and folder not in not_serving and not is_test(path) and "/test_" not in path
