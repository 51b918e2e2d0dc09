"""Runs the tests of the page for browsers; each of them shows in the output where one fails."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))
from subject import ANSWER, KEY, MODEL, PROMPT, configuration, heddle  # noqa: E402

MODULES = heddle.ROOT / "build" / "web" / "node_modules"


def run(suite, subject=None):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the page was not tested")
    if not (MODULES / "jsdom").is_dir():
        pytest.skip(f"{MODULES} lacks jsdom: ./dev test prepares it")
    ran = subprocess.run(
        [node, "--test", "--test-reporter=spec", HERE / suite],
        env={**os.environ, "NODE_PATH": str(MODULES), "HEDDLE_SUBJECT": json.dumps(subject), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "fail 0" in ran.stdout and "skipped 0" in ran.stdout, ran.stdout


def test_the_parts():
    run("parts.test.mjs")


def test_against_a_server():
    with heddle.Server(configuration()) as server:
        run(
            "live.test.mjs",
            {"url": server.url, "key": KEY, "model": MODEL, "prompt": PROMPT, "answer": ANSWER},
        )
