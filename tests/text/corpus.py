"""Texts that tokenizers get wrong, and text to train small tokenizers on. Everything is made here."""

import random

WORDS = """the of and to in is that it was for on are as with his they be at one have this from or had by
hot but some what there we can out other were all your when up use word how said an each she which do
their time if will way about many then them would write like so these her long make thing see him two
has look more day could go come did my sound no most number who over know water than call first people
may down side been now find any new work part take get place made live where after back little only
model token page device memory prompt answer server stream sort reverse digits add copy""".split()

FOREIGN = [
    "Привет, как дела? Всё хорошо.", "你好，世界。今天天气很好。", "こんにちは、元気ですか？", "안녕하세요 세계",
    "مرحبا بالعالم كيف حالك", "שלום עולם", "नमस्ते दुनिया", "Γειά σου Κόσμε", "Xin chào thế giới",
    "Çok güzel bir gün", "naïve café résumé coöperate", "Straße Größe Übermut", "สวัสดีชาวโลก",
]


def training_lines(seed=7, count=4000):
    """Sentences of common words, numbers, code and other scripts; the same on every run."""
    rng = random.Random(seed)
    for _ in range(count):
        kind = rng.randrange(10)
        words = [rng.choice(WORDS) for _ in range(rng.randrange(3, 14))]
        if kind < 6:
            yield " ".join(words).capitalize() + rng.choice([".", "!", "?", "...", ","])
        elif kind == 6:
            yield f"{rng.randrange(1000)} + {rng.randrange(1000)} = {rng.randrange(2000)}; it's I'll we've DON'T"
        elif kind == 7:
            yield f"def {words[0]}_{words[1]}({words[2]}):\n    return {words[0]}[{rng.randrange(9)}]\n\n"
        elif kind == 8:
            yield rng.choice(FOREIGN)
        else:
            yield '{"' + words[0] + '": "' + words[1] + '", "n": ' + str(rng.randrange(100)) + "}"


def planes():
    """A few characters of every plane that has any, and the edges of each UTF-8 length."""
    edges = [0x00, 0x01, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF]
    edges += [0x10000, 0x1F600, 0x1FFFF, 0x20000, 0x2A6DF, 0x30000, 0x40000, 0x50000, 0xA0000, 0xE0001,
              0xE01EF, 0xF0000, 0xFFFFD, 0x100000, 0x10FFFD, 0x10FFFF]
    yield "".join(map(chr, edges))
    yield " ".join(map(chr, edges))
    for plane in range(17):
        rng = random.Random(plane)
        points = [plane * 0x10000 + rng.randrange(0x10000) for _ in range(12)]
        yield "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)


def nasty(special_tokens):
    """Texts for encoding; `special_tokens` are spelled by users too."""
    yield from ["", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", "  a  ", "\n\n\n", " \n \n ", "\u2581", "▁a ▁ b"]
    yield "".join(map(chr, range(32)))
    yield "".join(map(chr, range(127, 161)))
    yield from planes()
    yield from FOREIGN
    yield from ["Hello, world!", "I'm we're they'll IT'S don'T 'tis ' s", "x" * 400, " " * 300, "ab" * 150, "\n" * 130]
    yield from ["1", "12", "123", "1234", "1234567890" * 6, "3.14159", "1,000,000", "٣٤٥ १२३ ①②③ ½"]
    yield from ["e\u0301 vs \u00e9", "a\u0300\u0301\u0302\u0303\u0304", "\u0301start", "Å Å Å", "ﬁ ﬂ ﬀ", "ẛ̣", "\u1100\u1161\u11a8"]
    yield from ["👨‍👩‍👧‍👦", "🏳️‍🌈🏴‍☠️", "👍🏽👍🏿", "🇩🇪🇫🇷🇯🇵", "1️⃣2️⃣#️⃣", "😀" * 40, "a😀b😀c"]
    yield from ["\u202eabc\u202c", "abc\u200fאבג\u200e", "\u2066x\u2069", "\ufeffBOM", "zero\u200bwidth\u200d\u2060", "soft\u00adhyphen"]
    yield from ["\u00a0nbsp\u2003em\u3000ideo\u1680ogham", "line\u2028sep\u2029par\u0085nel", "tab\tvt\x0bff\x0cfs\x1cus\x1f"]
    yield from ["<0x41>", "<0xE4><0xBD>", "<0x", "<unk>", "Ġhello Ċ ĉ", "Ã©", "ā Ġ ġ"]
    yield from ["#include <x.h>\nint main() {\n\treturn 0;\n}\n", "    if (a != b) {\n        c += d[e];\n    }", "https://a.b/c?d=e&f=%20g"]
    yield from ["ALLCAPS MixedCase snake_case kebab-case", "......", "!!!???", "a.b.c.d", "-----", "$%^&*()[]{}|\\/~`"]
    yield from [" leading", "trailing ", "two  spaces", "three   spaces x", "a\n b\n  c", "\n a", " \n", "a \n", "\t\t x"]
    for token in special_tokens:
        yield token
        yield f"say {token} now"
        yield f" {token} "
        yield f"{token}{token}x{token}"
        yield f"{token[:-1]} {token[1:]}"
    rng = random.Random(99)
    pools = [range(0x20, 0x7F), range(0xA0, 0x250), range(0x370, 0x600), range(0x900, 0xA00), range(0x2000, 0x2100),
             range(0x3040, 0x3100), range(0x4E00, 0x4F00), range(0xAC00, 0xAD00), range(0x1F300, 0x1F650), range(0, 0x20)]
    for _ in range(40):
        yield "".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(1, 40)))
