"""The official client of Ollama's API for Python."""

import json

import closer
import ollama
import pytest
from subject import ANSWER, KEY, MODEL, PROMPT, configuration, heddle

MESSAGES = [{"role": "user", "content": PROMPT}]
GREEDY = {"temperature": 0, "num_ctx": 2048}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "tells the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def connect(server, key=KEY):
    return ollama.Client(host=server.url, headers={"Authorization": f"Bearer {key}"}, timeout=60)


@pytest.fixture(scope="module")
def client(server):
    return connect(server)


def test_a_chat_whole_and_streamed(client):
    whole = client.chat(model=MODEL, messages=MESSAGES, options=GREEDY)
    assert (whole.message.role, whole.message.content, whole.done_reason) == ("assistant", ANSWER, "stop")
    assert whole.total_duration > 0 and whole.eval_duration > 0 and whole.prompt_eval_duration > 0
    assert whole.load_duration + whole.prompt_eval_duration + whole.eval_duration <= whole.total_duration
    parts = list(client.chat(model=MODEL, messages=MESSAGES, options=GREEDY, stream=True))
    assert "".join(part.message.content for part in parts) == ANSWER
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert (parts[-1].eval_count, parts[-1].prompt_eval_count) == (whole.eval_count, whole.prompt_eval_count)


def test_names_have_a_tag_or_none(client):
    assert client.chat(model=MODEL + ":latest", messages=MESSAGES, options=GREEDY).message.content == ANSWER


def test_a_prompt_whole_and_streamed(client):
    assert client.generate(model=MODEL, prompt=PROMPT, options=GREEDY).response == ANSWER
    parts = list(client.generate(model=MODEL, prompt=PROMPT, options=GREEDY, stream=True))
    assert "".join(part.response for part in parts) == ANSWER and parts[-1].done
    short = client.generate(model=MODEL, prompt=PROMPT, options={**GREEDY, "num_predict": 1})
    assert (short.done_reason, short.eval_count) == ("length", 1)
    stopped = client.generate(model=MODEL, prompt=PROMPT, options={**GREEDY, "stop": [ANSWER[-1]]})
    assert stopped.response == ANSWER[: ANSWER.index(ANSWER[-1])]


def test_equal_seeds_give_equal_answers(client):
    hot = {"temperature": 5, "seed": 7, "num_predict": 12}
    first, second = (client.generate(model=MODEL, prompt=PROMPT, options=hot).response for _ in range(2))
    assert first == second


def test_an_answer_of_a_form(client):
    schema = {"type": "object", "properties": {"sunny": {"type": "boolean"}}, "required": ["sunny"], "additionalProperties": False}
    answer = client.chat(model=MODEL, messages=MESSAGES, format=schema)
    assert set(json.loads(answer.message.content)) == {"sunny"}


def test_logprobs(client):
    answer = client.generate(model=MODEL, prompt=PROMPT, options=GREEDY, logprobs=True, top_logprobs=2)
    assert "".join(one.token for one in answer.logprobs) == ANSWER
    assert all(one.logprob <= 0 and len(one.top_logprobs) == 2 for one in answer.logprobs)


def test_tools_and_their_results_are_taken(client):
    """The models here do not call of their own accord, and this API has no way to make them."""
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}]}
    result = {"role": "tool", "tool_name": "weather", "content": "sunny"}
    answer = client.chat(model=MODEL, messages=[*MESSAGES, called, result], tools=[WEATHER], options=GREEDY)
    assert answer.message.content == ANSWER


def test_thoughts_are_told_apart(tmp_path):
    closer.write(tmp_path / "closer", thinks=True)
    row = f"  closer: {{path: {tmp_path / 'closer'}, reasoning_parser: think}}\n"
    with heddle.Server(heddle.config(models=[row], extra=f"apiKeys: [{KEY}]\n")) as running:
        client = connect(running)
        thought = client.chat(model="closer", messages=MESSAGES, think=True)
        assert (thought.message.thinking, thought.message.content) == ("o", "")
        parts = list(client.generate(model="closer", prompt=PROMPT, think=True, stream=True))
        assert "".join(part.thinking or "" for part in parts) == "o"
        plain = client.chat(model="closer", messages=MESSAGES, think=False)
        assert (plain.message.thinking, plain.message.content) == (None, "o")


def test_vectors(client):
    many = client.embed(model=MODEL, input=["12", "34"], dimensions=8)
    assert [len(vector) for vector in many.embeddings] == [8, 8] and many.prompt_eval_count > 0
    assert sum(number**2 for number in many.embeddings[0]) == pytest.approx(1, abs=1e-4)
    assert len(client.embeddings(model=MODEL, prompt="12").embedding) > 8


def test_models_are_listed_shown_loaded_and_unloaded(server, client):
    (listed,) = client.list().models
    assert listed.model == MODEL + ":latest" and listed.size > 0 and len(listed.digest) == 64
    shown = client.show(listed.model)
    assert "completion" in shown.capabilities and "tools" in shown.capabilities
    family = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{family}.context_length"] > 0
    assert shown.modelinfo["general.parameter_count"] > 100_000
    assert shown.details.parameter_size == f"{shown.modelinfo['general.parameter_count'] / 1000:.0f}K"
    with heddle.Server(configuration(keys=f"[{KEY}, {{key: root, role: admin}}]")) as own:
        admin, asker = connect(own, "root"), connect(own)
        assert admin.generate(model=MODEL, keep_alive="10m").done_reason == "load"
        assert asker.generate(model=MODEL, prompt=PROMPT, options=GREEDY).response == ANSWER
        (running,) = asker.ps().models
        assert running.name == MODEL + ":latest" and running.size > 0 and running.context_length > 0
        assert running.expires_at.year >= 2026 and running.size_vram == 0
        with pytest.raises(ollama.ResponseError) as caught:
            asker.generate(model=MODEL, keep_alive=0)
        assert caught.value.status_code == 403
        assert admin.generate(model=MODEL, keep_alive=0).done_reason == "unload"
        assert admin.ps().models == []
        assert [part.status for part in admin.pull(MODEL, stream=True)][-1] == "success"
        assert admin.pull(MODEL).status == "success"
        with pytest.raises(ollama.ResponseError) as caught:
            admin.pull("llama3.2")
        assert caught.value.status_code == 404 and "configuration" in caught.value.error
        with pytest.raises(ollama.ResponseError) as caught:
            admin.delete(MODEL)
        assert caught.value.status_code == 501


def test_errors_are_the_clients(client, server):
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat(model="nobody", messages=MESSAGES)
    assert caught.value.status_code == 404 and "nobody" in caught.value.error
    with pytest.raises(ollama.ResponseError) as caught:
        next(client.generate(model="nobody", prompt=PROMPT, stream=True))
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError) as caught:
        client.generate(model=MODEL, prompt=PROMPT, suffix=PROMPT)
    assert "suffix" in caught.value.error
    with pytest.raises(ollama.ResponseError) as caught:
        client.pull("llama3.2")
    assert caught.value.status_code == 403
    with pytest.raises(ollama.ResponseError) as caught:
        connect(server, "wrong").list()
    assert caught.value.status_code == 401
