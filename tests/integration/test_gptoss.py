"""gpt-oss: tiny random models, against what transformers says of them, and answers in harmony's format."""

import json
import shutil
import subprocess

import pytest
import server as heddle
from goldens import PROMPT, golden, greedy_of, with_words

CASES = ("gpt-oss", "gpt-oss-f32", "gpt-oss-mxfp4")
HARMONY = (
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
    "{% if tools %}{{ tools | length }}{% endif %}{{ reasoning_effort or '' }}<|start|>assistant"
    "{% if not add_generation_prompt %}<|channel|>{% endif %}"
)
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"sum": {"type": "integer", "enum": [46, 47]}},
            "required": ["sum"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gptoss")
    return {name: with_words(name, folder / name) for name in CASES}


def test_greedy_text_is_that_of_transformers(directories):
    models = [f"  {name}: {{path: {path}, dtype: float32}}\n" for name, path in directories.items()]
    with heddle.Server(heddle.config(models=models)) as server:
        for name in directories:
            ids, greedy = golden(name)
            assert greedy_of(server, name, ids[:PROMPT], len(greedy)) == greedy, name


@pytest.mark.parametrize("way", ["tensor_parallel", "pipeline_parallel"])
def test_several_devices_give_the_same_text(directories, way):
    devices = "".join(f"  - {{name: cpu{i}, kind: cpu, memory: 4MiB, page: 64KiB}}\n" for i in range(2))
    models = [f"  parts: {{path: {directories['gpt-oss']}, dtype: float32, {way}: 2}}\n"]
    with heddle.Server(heddle.config(models=models, devices=devices)) as server:
        ids, greedy = golden("gpt-oss")
        assert greedy_of(server, "parts", ids[:PROMPT], len(greedy)) == greedy


# As stored the experts stay blocks: their numbers are exact, and inputs of products are rounded.
def test_experts_stay_in_blocks(directories):
    path = directories["gpt-oss-mxfp4"]
    with heddle.Server(heddle.config(models=[f"  blocks: {{path: {path}}}\n"])) as server:
        ids, greedy = golden("gpt-oss-mxfp4")
        assert greedy_of(server, "blocks", ids[:PROMPT], 1) == greedy[:1]
        assert len(greedy_of(server, "blocks", ids[:PROMPT], 20)) == 20


def test_inspect_tells_what_it_has(directories):
    told = subprocess.run(
        [heddle.BINARY, "inspect", directories["gpt-oss-mxfp4"]], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
    for part in (
        "GptOssForCausalLM",
        "4 experts of 32, of which a token takes 2",
        "sinks of attention, biases of experts, gates within a limit",
        "window of 12 in 1 of 2 layers",
    ):
        assert part in told.stdout, told.stdout


# A demo model cannot speak harmony, but held to a form it does.
@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harmony") / "adder"
    shutil.copytree(heddle.ROOT / "models/adder", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": HARMONY}))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    with heddle.Server(heddle.config(models=[f"  adder: {{path: {folder}}}\n"])) as server:
        yield server


def chat(server, **fields):
    asked = {"model": "adder", "messages": [{"role": "user", "content": "12+34="}], "max_tokens": 120, **fields}
    status, _, answer = server.call("/v1/chat/completions", asked)
    assert status == 200, answer
    return answer["choices"][0]


def test_a_forced_call_is_spelled_in_harmony(talker):
    choice = chat(talker, tools=[TOOL], tool_choice="required")
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "add"
    assert json.loads(call["function"]["arguments"])["sum"] in (46, 47)
    assert not choice["message"]["content"]


def test_an_answer_that_is_held_to_a_form_is_text(talker):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    choice = chat(talker, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    assert json.loads(choice["message"]["content"])["a"] in (1, 2)
    assert "reasoning_content" not in choice["message"]
