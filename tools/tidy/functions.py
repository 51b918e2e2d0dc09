"""How long functions are. ctags says where each begins and ends, however its signature is wrapped.

What ctags does not take for a function (it stumbles over `Args&...` and over some templates) is measured by its
indentation: clang-format closes a block in the column in which it opens.
"""

import re

_OPENS = re.compile(r"^( {0,4})(?=\S).*\)( const| noexcept| override| final| mutable| ->.*)* \{$")
_STATEMENT = re.compile(r"\s*(\} )?(if|else|for|while|switch|do|return|concept|static_assert)\b")


def findings(tree, tables):
    for path in tree.cpp:
        for begin, end in spans(tree, path):
            if end - begin + 1 > tables.FUNCTION_LINES_MAX:
                yield path, begin, f"function of {end - begin + 1} lines; the limit is {tables.FUNCTION_LINES_MAX}"


def spans(tree, path: str):
    """First and last line of each function, test case and kernel of the file, from its signature to its brace."""
    found = [(tag.line, tag.end) for tag in tree.tags_of[path] if tag.kind == "function"]
    covered = set()
    for begin, end in found:
        covered.update(range(begin, end + 1))
    yield from found
    lines = tree.code(path).split("\n")
    last = 0
    for number, line in enumerate(lines, 1):
        opening = _OPENS.match(line)
        if number <= last or number in covered or not opening or _STATEMENT.match(line):
            continue
        closing = opening[1] + "}"
        last = next((n for n in range(number + 1, len(lines) + 1) if lines[n - 1].startswith(closing)), number)
        yield number, last
