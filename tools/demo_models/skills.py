"""The skills: where prompts and right answers come from.

A skill draws a random problem of a given difficulty (0 = easiest, 1 = as hard as it gets) and
knows its answer. Nothing is downloaded: everything follows from the seed of the generator.
"""

import hashlib
import random
import re
import string
from dataclasses import dataclass
from typing import Callable

from words import WORDS

MORSE = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyz0123456789",
        ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- "
        ".-- -..- -.-- --.. ----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----.".split(),
    )
)

NUMBER_MAX = 20  # of those that are added, subtracted, multiplied and divided
OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "%": lambda a, b: a % b,
}


@dataclass(frozen=True)
class Skill:
    """One checkable thing a model can do."""

    problem: Callable[[random.Random, float], str]  # draws a user's message
    answer: Callable[[str], str]  # the one right reply to it
    corpus: Callable[[], list[str]]  # text whose words the tokenizer is to know
    # What training draws, where it is wider than what the model is judged by.
    practice: Callable[[random.Random, float], str] | None = None


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


def invented_word(rng):
    """A word that has to be spelled, whole or after a known one that it begins with."""
    stem = rng.choice(["", "", rng.choice(WORDS)])
    rest = rng.choices(string.ascii_lowercase, k=rng.randint(1, 3) if stem else rng.randint(3, 7))
    word = stem + "".join(rest)
    return word.capitalize() if rng.random() < 0.2 else word


def reverser_words(rng, level):
    return rng.sample(WORDS, k=upto(rng, 2, 16, level))


def reverser_problem(rng, level):
    return "reverse " + " ".join(reverser_words(rng, level))


def reverser_practice(rng, level):
    """One word in a sixth of the problems is invented: what is not in WORDS can be tried too."""
    words = reverser_words(rng, level)
    if rng.random() < 1 / 6:
        words[rng.randrange(len(words))] = invented_word(rng)
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


def calculator_term(rng) -> str:
    """Two numbers and an operation whose result is a natural number."""
    operation, a, b = rng.choice("+-*%"), rng.randint(0, NUMBER_MAX), rng.randint(0, NUMBER_MAX)
    if operation == "-":
        a, b = max(a, b), min(a, b)
    return f"{a}{operation}{max(b, 1) if operation == '%' else b}"


def calculator_problem(rng, level):
    return "calculate " + " ".join(calculator_term(rng) for _ in range(upto(rng, 1, 8, level)))


def calculator_result(term: str) -> int:
    a, operation, b = re.fullmatch(r"(\d+)(\D)(\d+)", term).groups()
    return OPERATIONS[operation](int(a), int(b))


def calculator_answer(prompt):
    return " ".join(str(calculator_result(term)) for term in prompt.split()[1:])


def calculator_numbers() -> str:
    """All that occur in problems and answers."""
    low = range(2 * NUMBER_MAX + 1)
    products = {a * b for a in range(NUMBER_MAX + 1) for b in range(NUMBER_MAX + 1)}
    return " ".join(map(str, sorted(products | set(low))))


SKILLS = {
    "adder": Skill(adder_problem, adder_answer, lambda: ["0+0=0, 0: 0"]),
    "reverser": Skill(
        reverser_problem,
        reverser_answer,
        lambda: ["user assistant reverse", *WORDS],
        reverser_practice,
    ),
    "sorter": Skill(
        sorter_problem, sorter_answer, lambda: ["sort", " ".join(map(str, range(100)))]
    ),
    "morse": Skill(morse_problem, morse_answer, lambda: [morse_answer("x " + "".join(MORSE))] * 2),
    "calculator": Skill(
        calculator_problem, calculator_answer, lambda: ["calculate", calculator_numbers()]
    ),
}


def draw(name: str, rng: random.Random, level: float, for_training: bool) -> tuple[str, str]:
    """A (prompt, answer) pair from the wanted side of the held-out split."""
    skill = SKILLS[name]
    problem = skill.practice if for_training and skill.practice else skill.problem
    while True:
        prompt = problem(rng, level)
        if held_out(prompt) != for_training:
            return prompt, skill.answer(prompt)


def evaluation_set(name: str, count: int = 1000) -> list[tuple[str, str]]:
    """The `count` held-out problems, all different, that a model is judged by."""
    rng, problems = random.Random(f"{name} evaluation"), {}
    while len(problems) < count:
        prompt, answer = draw(name, rng, 1.0, for_training=False)
        problems[prompt] = answer
    return list(problems.items())
