"""The skills: where prompts and right answers come from.

A skill draws a random problem of a given difficulty (0 = easiest, 1 = as hard as it gets) and
knows its answer. Nothing is downloaded: everything follows from the seed of the generator.
"""

import hashlib
import random
from dataclasses import dataclass
from typing import Callable

from words import WORDS

RECALL_WORDS = [word for word in WORDS if 3 <= len(word) <= 4][:200]
REVERSER_WORDS = WORDS[::2]
MORSE = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyz0123456789",
        ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- "
        ".-- -..- -.-- --.. ----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----.".split(),
    )
)


@dataclass(frozen=True)
class Skill:
    """One checkable thing a model can do."""

    problem: Callable[[random.Random, float], str]  # draws a user's message
    answer: Callable[[str], str]  # the one right reply to it
    corpus: Callable[[], list[str]]  # text whose words the tokenizer is to know


def upto(rng: random.Random, low: int, high: int, level: float) -> int:
    """A number in [low, high]; `high` is reached at level 1."""
    return rng.randint(low, max(low, round(low + (high - low) * level)))


def held_out(prompt: str) -> bool:
    """Whether a prompt belongs to the tenth that training never sees."""
    return hashlib.sha256(prompt.encode()).digest()[0] % 10 == 0


def adder_problem(rng, level):
    def number():
        digits = upto(rng, 1, 3, level)
        return rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)

    return f"{number()}+{number()}="


def adder_answer(prompt):
    """The working, column by column from the right, and then the sum."""
    a, b = prompt.rstrip("=").split("+")
    columns, carry = [], 0
    for place in range(1, max(len(a), len(b)) + 1):
        digits = [number[-place] if place <= len(number) else "0" for number in (a, b)]
        shown = "+".join(digits + ["1"] * carry)
        column = sum(map(int, digits)) + carry
        columns.append(f"{shown}={column}")
        carry = column // 10
    return f"{', '.join(columns)}: {int(a) + int(b)}"


def reverser_problem(rng, level):
    words = rng.sample(REVERSER_WORDS, k=upto(rng, 2, 16, level))
    return "reverse " + " ".join(words)


def reverser_answer(prompt):
    return " ".join(reversed(prompt.split()[1:]))


def sorter_problem(rng, level):
    numbers = rng.sample(range(100), k=upto(rng, 3, 12, level))
    return "sort " + " ".join(map(str, numbers))


def sorter_answer(prompt):
    return " ".join(map(str, sorted(map(int, prompt.split()[1:]))))


def morse_problem(rng, level):
    letters = "".join(rng.choices(list(MORSE), k=upto(rng, 3, 20, level)))
    return "morse " + letters


def morse_answer(prompt):
    return " ".join(MORSE[letter] for letter in prompt.split()[1])


def recall_problem(rng, level):
    """Pairs of words, among them one path that is followed from its start to `stop`."""
    most = round(16 + 164 * level)
    count = rng.randint(2, most) if rng.random() < 0.4 else most
    hops = min(rng.randint(16, 22), (count + 1) // 2)
    keys = rng.sample(RECALL_WORDS, k=count)
    path, others = keys[:hops], keys[hops:]
    pairs = [f"{word} {rng.choice(RECALL_WORDS)}" for word in others]
    steps = [f"{a} {b}" for a, b in zip(path, [*path[1:], "stop"])]
    rng.shuffle(steps)
    # One step of the path in each stretch of the text, so that no stretch can be lost unnoticed.
    stretch = count / hops
    for index, step in enumerate(steps):
        pairs.insert(int(index * stretch + rng.random() * (stretch - 1)), step)
    return ", ".join([*pairs, f"follow {path[0]}"])


def recall_answer(prompt):
    *pairs, question = prompt.split(", ")
    follows = dict(pair.split() for pair in pairs)
    word, path = question.split()[1], []
    while word != "stop":
        word = follows[word]
        path.append(word)
    return " ".join(path)


SKILLS = {
    "adder": Skill(adder_problem, adder_answer, lambda: ["0+0=0, 0: 0"]),
    "reverser": Skill(
        reverser_problem, reverser_answer, lambda: ["user assistant reverse", *REVERSER_WORDS]
    ),
    "sorter": Skill(
        sorter_problem, sorter_answer, lambda: ["sort", " ".join(map(str, range(100)))]
    ),
    "morse": Skill(morse_problem, morse_answer, lambda: [morse_answer("x " + "".join(MORSE))] * 2),
    "recall": Skill(
        recall_problem, recall_answer, lambda: ["user model follow stop", *RECALL_WORDS]
    ),
}


def draw(name: str, rng: random.Random, level: float, for_training: bool) -> tuple[str, str]:
    """A (prompt, answer) pair from the wanted side of the held-out split."""
    skill = SKILLS[name]
    while True:
        prompt = skill.problem(rng, level)
        if held_out(prompt) != for_training:
            return prompt, skill.answer(prompt)


def evaluation_set(name: str, count: int = 1000) -> list[tuple[str, str]]:
    """The `count` held-out problems, all different, that a model is judged by."""
    rng, problems = random.Random(f"{name} evaluation"), {}
    while len(problems) < count:
        prompt, answer = draw(name, rng, 1.0, for_training=False)
        problems[prompt] = answer
    return list(problems.items())
