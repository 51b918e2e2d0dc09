"""Where the clients are, and how one is run: in an environment of its own, and with nothing but the server to talk to."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import server as heddle  # noqa: E402

HOME = heddle.ROOT / "build" / "clients"
HERE = pathlib.Path(__file__).parent
KEY = "sesame"
MODEL = "adder"
PROMPT, ANSWER = heddle.eval_set(MODEL, 1)[0]
# Nothing is fetched or told to anybody while tests run.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "USE_TORCH": "0",
    "NO_PROXY": "127.0.0.1",
    "NO_COLOR": "1",
}


def python(name):
    """The interpreter that sees the clients of tests/clients/NAME_requirements.txt."""
    found = HOME / name / "bin" / "python"
    if not (HOME / name / "requirements.txt").exists():
        pytest.skip(f"{HOME / name} is not complete: ./dev test prepares it")
    return found


def run(command, directory, **variables):
    """What a client printed, which must end well."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(
        command,
        cwd=directory,
        env={**kept, **QUIET, "HOME": str(directory), "PYTHONPYCACHEPREFIX": str(HOME / "compiled"), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def run_suite(name, server, directory):
    """Runs a suite, whose tests are told about where one fails, with the libraries' interpreter."""
    subject = {"url": server.url, "key": KEY, "model": MODEL, "prompt": PROMPT, "answer": ANSWER}
    command = [python("libraries"), "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:warnings", HERE / name]
    said = run(command, directory, HEDDLE_SUBJECT=json.dumps(subject))
    assert " passed" in said and "skipped" not in said, said
