"""What programs of others send, against the real server."""

import gzip
import json
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
    status, _, refused = chat(server, min_tokens=2, response_format={"type": "json_object"})
    assert status == 400 and refused["error"]["param"] == "min_tokens"


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
