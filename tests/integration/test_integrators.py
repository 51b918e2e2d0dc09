"""What programs of others send, against the real server."""

import datetime
import gzip
import json
import re
import time
import urllib.error
import urllib.request

import pytest
import server as heddle


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    keys = (
        "apiKeys: [{key: root, role: admin, name: root}, {key: one, name: alice},"
        " {key: two, name: bob, requests_per_minute: 2}]\n"
    )
    data = tmp_path_factory.mktemp("data")
    with heddle.Server(heddle.config(models=["adder", "morse"], extra=keys + f"dataDir: {data}\n")) as running:
        running.data = data
        yield running


def ask(server, path, body=None, key="root", headers=None):
    """(status, headers, JSON) of an answer."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    sent = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(server.url + path, data, sent)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.headers, json.loads(error.read())


def chat(server, key="root", **fields):
    prompt, _ = heddle.eval_set("adder", 1)[0]
    body = {"model": "adder", "messages": [{"role": "user", "content": prompt}], "temperature": 0, **fields}
    return ask(server, "/v1/chat/completions", body, key)


def test_context_lengths_are_known_before_the_first_load(server):
    deadline = time.monotonic() + 20  # The files of models are read beside the first requests.
    while True:
        _, _, models = ask(server, "/v1/models")
        lengths = {model["id"]: model.get("max_model_len") for model in models["data"]}
        if lengths == {"adder": 512, "morse": 512}:
            break
        assert time.monotonic() < deadline, lengths
        time.sleep(0.02)
    assert {model["status"]["value"] for model in models["data"]} == {"unloaded"}


def test_paths_are_taken_as_they_are_meant(server):
    assert ask(server, "/models/")[0] == 200
    assert ask(server, "/chat/completions/", {})[2]["error"]["param"] == "model"
    status, _, body = ask(server, "/v1/chat/completion", {})
    assert status == 404 and "near it are /v1/chat/completions" in body["error"]["message"]
    assert len(body["error"]["message"]) < 200


def test_a_coded_body_is_refused_in_words(server):
    body = gzip.compress(b'{"model":"adder"}')
    status, _, answer = ask(server, "/v1/chat/completions", body, headers={"Content-Encoding": "gzip"})
    assert status == 415 and "Content-Encoding" in answer["error"]["message"]


def test_an_answer_of_allowed_tokens_alone(server):
    _, _, tokens = ask(server, "/tokenize", {"model": "adder", "prompt": "7", "add_special_tokens": False})
    (seven,) = tokens["tokens"]
    status, headers, answer = chat(server, allowed_token_ids=[seven], max_tokens=3)
    assert status == 200 and set(answer["choices"][0]["message"]["content"]) == {"7"}
    assert "Date" in headers


def test_words_that_must_not_come_and_answers_of_some_length(server):
    answer = chat(server)[2]["choices"][0]["message"]["content"]
    other = chat(server, bad_words=[answer[0]])[2]["choices"][0]["message"]["content"]
    assert answer[0] in answer and answer[0] not in other
    whole = chat(server, bad_words=[answer], max_tokens=40)[2]["choices"][0]["message"]["content"]
    assert answer not in whole
    short = chat(server)[2]["usage"]["completion_tokens"]
    for extra in ({}, {"stop": [answer[-1]]}, {"temperature": 1}):
        longer = chat(server, min_tokens=short + 9, max_tokens=short + 20, **extra)[2]
        assert longer["usage"]["completion_tokens"] > short + 8, extra
    bound = {"type": "json_schema", "json_schema": {"name": "b", "schema": {"enum": [1, 2]}}}
    for value, other in ("1", "2"), ("2", "1"):
        _, _, held = chat(server, bad_words=[value], min_tokens=40, response_format=bound)
        assert held["choices"][0]["message"]["content"].strip() == other, "the format holds, and so do the bans"


def test_a_call_that_is_cut_off_is_a_call(server):
    add = {"name": "add", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}}
    tools = [{"type": "function", "function": add}]
    _, _, answer = chat(server, tools=tools, tool_choice="required", max_tokens=30)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] is None
    call = choice["message"]["tool_calls"][0]["function"]
    assert call["name"] == "add" and call["arguments"].startswith("{")


def test_a_set_of_pydantic_is_held_to_all_but_uniqueness(server):
    pydantic = pytest.importorskip("pydantic")

    class Digits(pydantic.BaseModel):
        digits: set[bool]

    schema = {"type": "json_schema", "json_schema": {"name": "d", "schema": Digits.model_json_schema()}}
    status, _, answer = chat(server, response_format=schema, max_tokens=60)
    assert status == 200 and "uniqueItems" in answer["warnings"][0]


def test_quotas_and_usage(server):
    first = chat(server, key="two")
    assert first[0] == 200 and first[1]["x-ratelimit-remaining-requests"] == "1"
    assert chat(server, key="two")[0] == 200
    status, headers, body = chat(server, key="two")
    assert status == 429 and 1 <= int(headers["Retry-After"]) <= 30
    assert body["error"]["code"] == "rate_limit_exceeded"
    assert chat(server, key="one")[0] == 200
    _, _, own = ask(server, "/api/usage", key="one")
    assert [(row["key"], row["model"], row["requests"]) for row in own["usage"]] == [("alice", "adder", 1)]
    assert own["usage"][0]["completion_tokens"] > 0
    _, _, all_of_them = ask(server, "/api/usage")
    assert {row["key"] for row in all_of_them["usage"]} == {"root", "alice", "bob"}


def test_usage_outlives_the_server(tmp_path):
    text = heddle.config(models=["adder"], extra=f"dataDir: {tmp_path}\n")
    for count in (1, 2):
        with heddle.Server(text) as running:
            assert chat(running)[0] == 200
            assert ask(running, "/api/usage")[2]["usage"][0]["requests"] == count
            running.process.terminate()
            assert running.process.wait(30) == 0


def lines(server, path, body, headers=None):
    """The lines of a stream."""
    sent = {"Authorization": "Bearer root", "Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), sent)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [line.decode().strip() for line in answer if line.strip()]


def sse(server, path, body, headers=None):
    """The JSON of a stream's events."""
    found = [line[6:] for line in lines(server, path, body, headers) if line.startswith("data: ")]
    assert found[-1] == "[DONE]"
    return [json.loads(event) for event in found[:-1]]


def test_open_webui_as_a_client_of_an_openai_server(server):
    """What its router of OpenAI connections sends: the listing, a chat with the headers that tell whose it is, and the
    small tasks about a chat (its title), which are not streamed."""
    user = {"X-OpenWebUI-User-Name": "Ann", "X-OpenWebUI-User-Id": "7", "X-OpenWebUI-User-Role": "admin"}
    _, _, models = ask(server, "/v1/models", headers=user)
    assert {model["id"] for model in models["data"]} >= {"adder", "morse"}
    prompt, expected = heddle.eval_set("adder", 1)[0]
    body = {
        "stream": True,
        "model": "adder",
        "messages": [{"role": "user", "content": prompt}],
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "top_p": 0.9,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "seed": 1,
        "stop": ["\n\n"],
        "max_tokens": 128,
        "logit_bias": {},
    }
    events = sse(server, "/v1/chat/completions", body, user)
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
    assert text == expected and events[-1]["usage"]["completion_tokens"] > 0
    task = {"model": "adder", "messages": body["messages"], "stream": False, "max_completion_tokens": 1000}
    assert ask(server, "/v1/chat/completions", task, headers=user)[0] == 200


def test_open_webui_as_a_client_of_ollama(server):
    """Its router of Ollama connections: versions it compares as numbers, models under the names of the tags, times that
    it parses, a chat with options and a keep_alive, and the empty prompt by which it unloads."""
    _, _, version = ask(server, "/api/version")
    assert all(part.isdigit() for part in version["version"].split("-")[0].split("."))
    _, _, tags = ask(server, "/api/tags")
    name = next(model["model"] for model in tags["models"] if model["name"].startswith("adder"))
    prompt, expected = heddle.eval_set("adder", 1)[0]
    body = {
        "model": name,
        "messages": [{"role": "user", "content": prompt, "images": []}],
        "options": {"temperature": 0, "num_ctx": 2048, "num_predict": 128, "repeat_last_n": 64, "seed": 1, "stop": []},
        "stream": True,
        "keep_alive": "5m",
    }
    answer = [json.loads(line) for line in lines(server, "/api/chat", body)]
    assert "".join(line["message"]["content"] for line in answer) == expected and answer[-1]["done"]
    _, _, loaded = ask(server, "/api/ps")
    ends = [datetime.datetime.fromisoformat(model["expires_at"]) for model in loaded["models"] if "expires_at" in model]
    assert all(end.tzinfo for end in ends)
    status, _, told = ask(server, "/api/generate", {"model": name, "keep_alive": 0, "prompt": ""})
    assert status == 200 and told["done_reason"] == "unload"


def test_continue_as_a_client_of_an_openai_server(server):
    """Its chat has no fields but the usual and `api-key` beside the usual header; its completions are streamed."""
    prompt, expected = heddle.eval_set("adder", 1)[0]
    fields = {"model": "adder", "max_tokens": 100, "temperature": 0, "stream": True, "stop": ["<|im_end|>", "```"]}
    azure = {"api-key": "root"}
    chatted = sse(
        server, "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], **fields}, azure
    )
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in chatted if event["choices"])
    assert text == expected
    completed = sse(server, "/v1/completions", {"prompt": prompt, **fields}, azure)
    assert all(isinstance(event["choices"][0]["text"], str) for event in completed)


def test_continue_as_a_client_of_ollama(server):
    """It asks what a model is by `name`, whose parameters it reads line by line; chats with options of the machine; and
    completes code from raw prompts that have the model's own marks."""
    status, _, shown = ask(server, "/api/show", {"name": "adder"})
    assert status == 200 and ".Suffix" not in shown.get("template", "")
    for line in filter(None, shown.get("parameters", "").split("\n")):
        assert re.match(r'^(\S+)\s+((?:".*")|\S+)$', line), line
    prompt, expected = heddle.eval_set("adder", 1)[0]
    machine = {"temperature": 0, "top_p": 1, "num_predict": 100, "stop": ["```"]}
    machine |= {"num_ctx": 512, "num_thread": 4, "use_mmap": True}
    body = {
        "model": "adder",
        "messages": [{"role": "user", "content": prompt}],
        "options": machine,
        "keep_alive": 1800,
        "stream": True,
    }
    answer = [json.loads(line) for line in lines(server, "/api/chat", body)]
    assert "".join(line["message"]["content"] for line in answer) == expected
    begun = {"model": "adder", "prompt": "<PRE> 1+ <SUF>=3 <MID>", "raw": True, "options": machine, "stream": True}
    written = [json.loads(line) for line in lines(server, "/api/generate", begun)]
    assert written[-1]["done"] and all("response" in line for line in written)


def test_how_likely_a_prompt_is_as_vllm_tells_it(server):
    """Harnesses ask with one token of an answer; the same numbers as `echo` has them."""
    prompt, _ = heddle.eval_set("adder", 1)[0]
    body = {"model": "adder", "prompt": prompt, "max_tokens": 1, "temperature": 0}
    _, _, scored = ask(server, "/v1/completions", {**body, "prompt_logprobs": 2})
    _, _, echoed = ask(server, "/v1/completions", {**body, "echo": True, "logprobs": 2})
    places = scored["choices"][0]["prompt_logprobs"]
    own = echoed["choices"][0]["logprobs"]["token_logprobs"]
    assert places[0] is None and len(places) == scored["usage"]["prompt_tokens"] <= len(own)
    for place, logprob in zip(places[1:], own[1:]):
        values = list(place.values())
        assert values[0]["logprob"] == pytest.approx(logprob, abs=1e-4) and 2 <= len(values) <= 3
        ranked = sorted((one["rank"], -one["logprob"]) for one in values if one["rank"])
        assert [rank for rank, _ in ranked] == [1, 2] and ranked[0][1] <= ranked[1][1]
    _, _, answer = chat(server, prompt_logprobs=0, max_tokens=1)
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
