"""Runs the tests of the page for browsers."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))
import node_suite  # noqa: E402
from subject import ANSWER, KEY, MODEL, PROMPT, configuration, heddle  # noqa: E402

KEYS = f"[{{key: {KEY}, role: admin}}, ask]"


def test_the_parts():
    node_suite.run(HERE / "parts.test.mjs", "web", "jsdom")


def test_against_a_server():
    with heddle.Server(configuration(keys=KEYS)) as server:
        subject = {"url": server.url, "key": KEY, "model": MODEL, "prompt": PROMPT, "answer": ANSWER}
        node_suite.run(HERE / "live.test.mjs", "web", "jsdom", subject)


def test_with_a_key_that_does_not_open_all():
    with heddle.Server(configuration(keys=KEYS)) as server:
        subject = {"url": server.url, "key": "ask", "admin": KEY, "model": MODEL, "prompt": PROMPT, "answer": ANSWER}
        node_suite.run(HERE / "roles.test.mjs", "web", "jsdom", subject)
