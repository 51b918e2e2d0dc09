"""Runs the suite of the JavaScript client."""

import pathlib

import node_suite
from subject import ANSWER, KEY, MODEL, PROMPT

SUITE = pathlib.Path(__file__).with_name("javascript") / "suite.cjs"


def test_the_javascript_client(server, slow_server):
    subject = {
        "url": server.url,
        "slowUrl": slow_server.url,
        "key": KEY,
        "model": MODEL,
        "prompt": PROMPT,
        "answer": ANSWER,
    }
    node_suite.run(SUITE, "node", "openai", subject)
