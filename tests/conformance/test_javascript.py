"""Runs the suites of the JavaScript clients."""

import pathlib

import node_suite
import pytest
from subject import ANSWER, KEY, MODEL, PROMPT

SUITES = pathlib.Path(__file__).with_name("javascript")


@pytest.mark.parametrize(
    ("suite", "package"), [("suite.cjs", "openai"), ("anthropic.cjs", "@anthropic-ai/sdk"), ("ollama.cjs", "ollama")]
)
def test_the_javascript_client(server, slow_server, suite, package):
    subject = {
        "url": server.url,
        "slowUrl": slow_server.url,
        "key": KEY,
        "model": MODEL,
        "prompt": PROMPT,
        "answer": ANSWER,
    }
    node_suite.run(SUITES / suite, "node", package, subject)
