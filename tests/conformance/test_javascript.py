"""Runs the suite of the JavaScript client; each of its tests shows in the output where one fails."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from subject import ANSWER, KEY, MODEL, PROMPT, heddle

SUITE = pathlib.Path(__file__).with_name("javascript") / "suite.cjs"
MODULES = heddle.ROOT / "build" / "node" / "node_modules"


def test_the_javascript_client(server, slow_server):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the JavaScript client was not tested")
    if not (MODULES / "openai").is_dir():
        pytest.skip(f"{MODULES} lacks the client: ./dev test prepares it")
    subject = {
        "url": server.url,
        "slowUrl": slow_server.url,
        "key": KEY,
        "model": MODEL,
        "prompt": PROMPT,
        "answer": ANSWER,
    }
    ran = subprocess.run(
        [node, "--test", "--test-reporter=spec", SUITE],
        env={**os.environ, "NODE_PATH": str(MODULES), "HEDDLE_SUBJECT": json.dumps(subject), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "fail 0" in ran.stdout and "skipped 0" in ran.stdout, ran.stdout
