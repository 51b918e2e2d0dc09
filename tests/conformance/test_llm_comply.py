"""What llm-comply asks of OpenAI's chats, of Open Responses and of Anthropic's messages."""

import json
import subprocess
import sys

import closer
import pytest
from subject import KEY, heddle

THINKING = "reasoning-summary"  # Only asked of names that it knows.
THINKER = "claude-sonnet-4"  # Such a name.
IMAGES = "image-input"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "closer"
    closer.write(path, thinks=True)
    row = f"  closer: {{path: {path}, reasoning_parser: think, aliases: [{THINKER}]}}\n"
    with heddle.Server(heddle.config(models=[row], extra=f"apiKeys: [{KEY}]\n")) as server:
        yield server.url + "/v1"


@pytest.mark.parametrize(
    ("form", "model", "prefix", "count", "skipped"),
    [
        ("openai-chat", "closer", "chat-", 9, {THINKING}),
        ("open-responses", "closer", "", 13, {THINKING}),
        ("anthropic", THINKER, "anth-", 9, set()),
    ],
)
def test_all_but_what_wants_eyes_passes(url, form, model, prefix, count, skipped):
    command = [sys.executable, "-m", "llm_comply.cli", "--format", form, "-u", url, "-k", KEY, "-m", model, "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    checks = {check["id"].removeprefix(prefix): check for check in json.loads(ran.stdout)["results"]}
    assert len(checks) == count
    assert {name for name, check in checks.items() if check["status"] == "skipped"} == skipped
    failed = {name: check["errors"] for name, check in checks.items() if check["status"] == "failed"}
    assert set(failed) == {IMAGES}, failed
    assert "HTTP 400 (expected [200])" in failed[IMAGES]
    # Compacting is what nobody need have, and we have not.
    warned = {name: check["warnings"] for name, check in checks.items() if check.get("warnings")}
    assert set(warned) <= {"compact-response"}, warned
