"""What llm-comply asks of OpenAI's chats, of Open Responses and of Anthropic's messages."""

import json
import subprocess
import sys

import closer
import pytest
from subject import KEY, heddle

IMAGES = "image-input"
# Of models whose names it does not know, it does not ask for thoughts.
THOUGHTS = {"openai-chat": "reasoning-summary", "open-responses": "reasoning-summary", "anthropic": "thinking-display"}
KNOWN = "claude-sonnet-4"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    closer.write(path / "closer")
    closer.write(path / "thinker", thinks=True)
    rows = [
        f"  closer: {{path: {path / 'closer'}}}\n",
        f"  thinker: {{path: {path / 'thinker'}, reasoning_parser: think, aliases: [{KNOWN}]}}\n",
    ]
    with heddle.Server(heddle.config(models=rows, extra=f"apiKeys: [{KEY}]\n")) as server:
        yield server.url + "/v1"


def checks_of(url, form, model, *options):
    command = [sys.executable, "-m", "llm_comply.cli", "--format", form, "-u", url, "-k", KEY, "-m", model, "--json", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return {check["id"]: check for check in json.loads(ran.stdout)["results"]}


@pytest.mark.parametrize(
    ("form", "prefix", "count"), [("openai-chat", "chat-", 9), ("open-responses", "", 13), ("anthropic", "anth-", 9)]
)
def test_all_but_what_wants_eyes_passes(url, form, prefix, count):
    checks = {name.removeprefix(prefix): check for name, check in checks_of(url, form, "closer").items()}
    assert len(checks) == count
    assert {name for name, check in checks.items() if check["status"] == "skipped"} == {THOUGHTS[form]}
    failed = {name: check["errors"] for name, check in checks.items() if check["status"] == "failed"}
    assert set(failed) == {IMAGES}, failed
    assert "HTTP 400 (expected [200])" in failed[IMAGES]
    # Compacting is what nobody need have, and we have not.
    warned = {name: check["warnings"] for name, check in checks.items() if check.get("warnings")}
    assert set(warned) <= {"compact-response"}, warned


def test_thoughts_are_shown_as_anthropics_are(url):
    name = "anth-thinking-display"
    check = checks_of(url, "anthropic", KNOWN, "--filter", name)[name]
    assert check["status"] == "passed", check
