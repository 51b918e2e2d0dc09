"""aider, asked once about a file."""

import json

import environments


def test_a_message_is_answered(server, tmp_path):
    # What it knows of models it looks up on the web, but for those that a file tells of. The models here see the last
    # message of the user alone, to which aider would add what it wants of every answer.
    model = f"openai/{environments.MODEL}"
    metadata = tmp_path / "metadata.json"
    metadata.write_text(json.dumps({model: {"max_input_tokens": 4096, "litellm_provider": "openai", "mode": "chat"}}))
    settings = tmp_path / "settings.yml"
    settings.write_text(f"- name: {model}\n  reminder: sys\n")
    (tmp_path / "sums.py").write_text("print(1)\n")
    command = [
        *[environments.python("aider"), "-m", "aider", "--model", model],
        *["--openai-api-base", server.url + "/v1", "--openai-api-key", environments.KEY],
        *["--model-metadata-file", metadata, "--model-settings-file", settings],
        *["--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings", "--no-show-release-notes"],
        *["--analytics-disable", "--no-pretty", "--map-tokens", "0", "--chat-mode", "ask"],
        *["--message", environments.PROMPT, "sums.py"],
    ]
    said = environments.run(command, tmp_path)
    assert f"\n{environments.ANSWER}\n" in said, said
    assert "received." in said and "Empty response" not in said, said
    assert (tmp_path / "sums.py").read_text() == "print(1)\n"
