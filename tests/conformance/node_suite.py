"""Suites of JavaScript, run by node's own test runner."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from subject import heddle


def run(suite: pathlib.Path, home: str, package: str, subject=None):
    """Runs `suite` with the modules of build/HOME; each of its tests shows in the output where one fails. It finds `subject` in
    HEDDLE_SUBJECT. Skipped where node, or the package that the suite is for, is not there."""
    modules = heddle.ROOT / "build" / home / "node_modules"
    node = shutil.which("node")
    if node is None:
        pytest.skip(f"node is not installed: {suite.name} did not run")
    if not (modules / package).is_dir():
        pytest.skip(f"{modules} lacks {package}: ./dev test prepares it")
    ran = subprocess.run(
        [node, "--test", "--test-reporter=spec", suite],
        env={**os.environ, "NODE_PATH": str(modules), "HEDDLE_SUBJECT": json.dumps(subject), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "fail 0" in ran.stdout and "skipped 0" in ran.stdout, ran.stdout
