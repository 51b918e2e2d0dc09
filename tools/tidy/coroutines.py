"""GCC 12 miscompiles some full-expressions that hold a co_await; clang-19 does not, and code reads better without them."""

import re

from tidy.sources import line_of


def findings(tree, tables):
    for path in tree.cpp:
        if path.startswith("src/"):
            for line, message in findings_in(tree.code(path)):
                yield path, line, message


def openers(code: str, at: int):
    """The brackets open at `at`, innermost first: ('if(', index), with the word before each."""
    depth = 0
    for i in range(at - 1, -1, -1):
        if code[i] in ")]}":
            depth += 1
        elif code[i] in "([{":
            if depth == 0:
                yield re.search(r"(\w*)\s*$", code[:i])[1] + code[i], i
                if code[i] == "{":
                    return
            depth = max(0, depth - 1)


def findings_in(code: str):
    """Lines of co_await in conditions, beside braces or lambdas, and under ?."""
    blocks = {"{", "else{", "do{", "try{", "const{", "noexcept{", "override{", "mutable{"}
    for match in re.finditer(r"\bco_await\b", code):
        line = line_of(code, match.start())
        around = list(openers(code, match.start()))
        words = {word for word, _ in around}
        loop = any(word == "for(" and ";" in code[i : match.start()] for word, i in around)
        depth, end = 0, match.end()
        while end < len(code) and not (depth == 0 and code[end] in ";)}"):
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(code[end], 0)
            end += 1
        expression = code[match.end() : end]
        before = code[max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1 : match.start()]
        if loop or not words.isdisjoint({"if(", "while(", "switch("}):
            yield line, "co_await in a condition: name its result on the line before"
        elif "{" in expression or re.search(r"[(,]\s*\[", expression):
            yield line, "braces or a lambda beside co_await: name the argument on the line before"
        elif "?" in before or "?" in expression:
            yield line, "co_await under ?: use if and else"
        elif around and around[-1][0].endswith("{") and around[-1][0] not in blocks:
            yield line, "co_await inside braces: name its result on the line before"
