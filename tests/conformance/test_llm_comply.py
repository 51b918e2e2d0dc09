"""What llm-comply asks of OpenAI's chats, of Open Responses and of Anthropic's messages."""

import json
import subprocess
import sys

import closer
import pytest
from subject import KEY, heddle

THINKING = {"openai-chat": "reasoning-summary", "open-responses": "reasoning-summary", "anthropic": "thinking-display"}  # Only asked of names that it knows.
IMAGES = "image-input"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "closer"
    closer.write(path)
    with heddle.Server(heddle.config(models=[f"  closer: {{path: {path}}}\n"], extra=f"apiKeys: [{KEY}]\n")) as server:
        yield server.url + "/v1"


@pytest.mark.parametrize(("form", "prefix", "count"), [("openai-chat", "chat-", 9), ("open-responses", "", 13), ("anthropic", "anth-", 9)])
def test_all_but_what_wants_eyes_passes(url, form, prefix, count):
    command = [sys.executable, "-m", "llm_comply.cli", "--format", form, "-u", url, "-k", KEY, "-m", "closer", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    checks = {check["id"].removeprefix(prefix): check for check in json.loads(ran.stdout)["results"]}
    assert len(checks) == count
    assert {name for name, check in checks.items() if check["status"] == "skipped"} == {THINKING[form]}
    failed = {name: check["errors"] for name, check in checks.items() if check["status"] == "failed"}
    assert set(failed) == {IMAGES}, failed
    assert "HTTP 400 (expected [200])" in failed[IMAGES]
    # Compacting is what nobody need have, and we have not.
    warned = {name: check["warnings"] for name, check in checks.items() if check.get("warnings")}
    assert set(warned) <= {"compact-response"}, warned
