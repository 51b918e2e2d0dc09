"""How pages read: columns of a line, words of a sentence and of a table's cell, and the mean of a page.

Prose is what remains of a page without code blocks, tables, headings and comments. A link counts as its words, and
code between backquotes as one word. A sentence ends with the paragraph or list item, or with . ! ? before a space. A table begins with its
head and the line below that; without them a row is shown as text.
"""

import dataclasses
import re

_ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s+")
_END = re.compile(r"[.!?][)\"'*_]*\s+(?=[\"'(*_`\[]*[A-Z0-9`\[])")
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)")
_RULE = re.compile(r"\|[\s:|-]+")
_SHORT = re.compile(r"\b(e\.g|i\.e|vs|cf|etc|approx|Fig|No|Sec|pp?|et al)\.")


@dataclasses.dataclass
class Page:
    long_lines: list[int]  # their numbers
    sentences: list[tuple[int, int]]  # line and words of each
    cells: list[tuple[int, int]]  # likewise, of tables
    headless: list[int]  # lines of rows without a head above them

    def long_sentences(self, limit: int) -> list[tuple[int, int]]:
        return [sentence for sentence in self.sentences if sentence[1] > limit]

    def mean(self) -> float:
        return sum(words for _, words in self.sentences) / max(1, len(self.sentences))


def read(text: str, columns: int) -> Page:
    page, paragraph, fence, rows = Page([], [], [], []), [], None, []

    def close():
        page.sentences.extend(sentences(paragraph))
        paragraph.clear()
        if rows and not (len(rows) > 1 and _RULE.fullmatch(rows[1][1])):
            page.headless.append(rows[0][0])
        page.cells.extend((number, words_of(cell)) for number, row in rows for cell in row.split(" | "))
        rows.clear()

    for number, line in enumerate(re.sub(r"<!--(?s:.*?)-->", lambda m: "\n" * m[0].count("\n"), text).split("\n"), 1):
        mark = re.match(r"\s*(```|~~~)", line)
        if mark or fence:
            close()
            fence = None if mark and mark[1] == fence else fence or mark[1]
            continue
        if line.startswith("|"):
            if not rows:
                close()
            rows.append((number, line.strip()))
            continue
        if rows:
            close()
        if re.match(r"\s*(\||#|$|<)|(    |\t)(?![ \t]*([-*+]|\d+[.)]) )", line) and not (paragraph and re.match(r"    +\S", line)):
            close()
            continue
        shown = shown_of(line)
        if len(shown) > columns:
            page.long_lines.append(number)
        item = _ITEM.match(shown)
        if item:
            close()
            shown = shown[item.end() :]
        paragraph.append((number, shown))
    close()
    return page


def shown_of(line: str) -> str:
    """The line without what a reader does not see of its links."""
    return re.sub(r"<?https?://\S+", "", _LINK.sub(r"\1", line))


def words_of(text: str) -> int:
    """Code between backquotes is one word."""
    return sum(1 for word in re.sub(r"`[^`]*`", "c", shown_of(text)).split() if re.search(r"\w", word))


def sentences(paragraph: list[tuple[int, str]]):
    """(line, words) of each sentence of a paragraph, which is a list of numbered lines."""
    text, starts = "", []
    for number, line in paragraph:
        starts.append((len(text), number))
        text += line.strip() + " "
    # Backquoted code is one word, however many spaces and full stops it holds.
    text = re.sub(r"`[^`]*`", lambda m: "c" * len(m[0]), text)
    text = _SHORT.sub(lambda m: m[0].replace(".", "_"), text)
    at = 0
    for end in [match.end() for match in _END.finditer(text)] + [len(text)]:
        words = sum(1 for word in text[at:end].split() if re.search(r"\w", word))
        if words:
            yield max(number for begin, number in starts if begin <= at), words
        at = end


def pages_of(tree):
    return [path for path in tree.committed if path.endswith(".md") and not path.startswith(("build/", "fuzz/corpus/", "tests/golden/llama"))]


def findings(tree, tables):
    for path in pages_of(tree):
        page = read(tree.text(path), tables.PROSE_COLUMNS_MAX)
        yield from ((path, line, message) for line, message in page_findings(page, tables.PAGES.get(path), tables))


def page_findings(page: Page, listed, tables):
    """`listed` is the page's row in PAGES, if it has one."""
    lines_max, sentences_max, mean_max = listed or (0, 0, tables.SENTENCE_WORDS_MEAN_MAX)
    instead = lambda allowed: f"; {allowed} are allowed here" if allowed else ""
    long = page.long_sentences(tables.SENTENCE_WORDS_MAX)
    if len(page.long_lines) > lines_max:
        for number in page.long_lines:
            yield number, f"a line of prose longer than {tables.PROSE_COLUMNS_MAX} columns{instead(lines_max)}"
    if len(long) > sentences_max:
        for number, words in long:
            yield number, f"a sentence of {words} words; the limit is {tables.SENTENCE_WORDS_MAX}{instead(sentences_max)}"
    for number, words in page.cells:
        if words > tables.CELL_WORDS_MAX:
            yield number, f"a table's cell of {words} words; the limit is {tables.CELL_WORDS_MAX}"
    for number in page.headless:
        yield number, "a table's row without a head above it"
    if round(page.mean(), 1) > max(mean_max, tables.SENTENCE_WORDS_MEAN_MAX):
        yield 1, f"sentences have {page.mean():.1f} words in the mean; the limit is {max(mean_max, tables.SENTENCE_WORDS_MEAN_MAX)}"


def table_of(tree) -> str:
    """The rows that PAGES needs for the pages as they are."""
    from tidy import tables

    rows = []
    for path in pages_of(tree):
        page = read(tree.text(path), tables.PROSE_COLUMNS_MAX)
        if any(True for _ in page_findings(page, None, tables)):
            row = (len(page.long_lines), len(page.long_sentences(tables.SENTENCE_WORDS_MAX)), round(page.mean(), 1))
            rows.append(f'    "{path}": {row},')
    return "\n".join(rows)
