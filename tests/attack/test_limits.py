"""Each bound of docs/contracts/limits.md, one below and one above: the page and the server say the same.

A row of the page begins with a name; every name has a case here and every case a row."""

import json
import pathlib
import re
import socket

import pytest
import server as heddle

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/contracts/limits.md"
MODEL = "adder"
BODY, HEADER = 1 << 20, 8 << 10
LIMITS = f"limits: {{body: {BODY}, header: {HEADER}}}\n"


@pytest.fixture(scope="module")
def server():
    with heddle.Server(heddle.config(extra=LIMITS)) as running:
        yield running


def chat(**fields):
    message = {"role": "user", "content": "1+2="}
    return "/v1/chat/completions", {"model": MODEL, "messages": [message], "max_tokens": 2, **fields}


def completion(prompt, **fields):
    return "/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 1, **fields}


def message(**fields):
    return "/v1/messages", {"model": MODEL, "messages": [{"role": "user", "content": "1+1="}], "max_tokens": 1, **fields}


def message_tool(name):
    return {"name": name, "input_schema": {"type": "object", "properties": {}}}


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def nested(depth):
    """An object that is so many levels deep, itself included, in a field that nobody reads."""
    value = {}
    for _ in range(depth - 2):
        value = {"a": value}
    return chat(nobody_reads_this=value)


def padded(size):
    path, body = chat(nobody_reads_this="")
    spare = size - len(json.dumps(body))
    return path, {**body, "nobody_reads_this": "x" * spare}


def fields(count):
    path, body = chat()
    return path, {**body, **{f"f{i}": 0 for i in range(count - len(body))}}


def properties(count):
    names = [f"p{i}" for i in range(count)]
    schema = {"type": "object", "properties": dict.fromkeys(names, {"type": "integer"}), "required": names}
    return chat(guided_json=schema)


def rules(count):
    """So many rules, each of them short and none deep."""
    return chat(guided_grammar="start: r1\n" + "\n".join(f'r{i}: "x"' for i in range(1, count)))


# name -> (what makes a request of a size, the largest that is taken, status and word of one more)
BODIES = {
    "body": (padded, BODY, 413, "limits.body"),
    "body depth": (nested, 64, 400, "JSON"),
    "n": (lambda n: chat(n=n), 16, 400, "n"),
    "stop": (lambda n: chat(stop=[f"~{i}" for i in range(n)]), 16, 400, "stop"),
    "stop bytes": (lambda n: chat(stop="~" * n), 1024, 400, "stop"),
    "stop_token_ids": (lambda n: chat(stop_token_ids=[1] * n), 128, 400, "stop_token_ids"),
    "allowed_token_ids": (lambda n: chat(allowed_token_ids=[1] * n), 1024, 400, "allowed_token_ids"),
    "cache_salt": (lambda n: chat(cache_salt="s" * n), 256, 400, "cache_salt"),
    "top_logprobs": (lambda n: chat(logprobs=True, top_logprobs=n), 20, 400, "top_logprobs"),
    "tools": (lambda n: chat(tools=[tool(f"t{i}") for i in range(n)], tool_choice="none"), 128, 400, "tools"),
    "tool name": (lambda n: chat(tools=[tool("t" * n)], tool_choice="none"), 64, 400, "name"),
    "message tools": (lambda n: message(tools=[message_tool(f"t{i}") for i in range(n)]), 128, 400, "tools"),
    "message tool name": (lambda n: message(tools=[message_tool("t" * n)]), 128, 400, "name"),
    "stop_sequences": (lambda n: message(stop_sequences=[f"~{i}" for i in range(n)]), 16, 400, "stop_sequences"),
    "guided_choice": (lambda n: chat(guided_choice=[f"{i}" for i in range(n)]), 1024, 400, "guided_choice"),
    "prompts": (lambda n: completion(["1+2="] * n), 128, 400, "prompt"),
    "grammar bytes": (lambda n: chat(guided_grammar='start: "x"\n//' + "y" * (n - 13)), 256 << 10, 400, "262144"),
    "grammar brackets": (lambda n: chat(guided_regex="(" * n + "x" + ")" * n), 100, 400, "100"),
    "grammar properties": (properties, 2000, 400, "2000"),
    "grammar rules": (rules, 5000, 400, "5000"),
    "body fields": (fields, 4096, 400, "4096"),
    "embedding inputs": (lambda n: ("/v1/embeddings", {"model": MODEL, "input": ["1"] * n}), 2048, 400, "2048"),
}


@pytest.mark.parametrize("name", sorted(BODIES))
def test_bodies(server, name):
    make, most, status, word = BODIES[name]
    path, body = make(most)
    answer = server.call(path, body)
    assert answer[0] == 200, answer[2]
    path, body = make(most + 1)
    answer = server.call(path, body)
    assert answer[0] == status, answer[2]
    assert word in answer[2]["error"]["message"]


def test_log_probabilities_of_prompts(server):
    """128 prompts of 48 tokens with 20 alternatives each are below the bound, of 49 above it."""
    for tokens, status in ((48, 200), (49, 400)):
        body = {"model": MODEL, "prompt": [[5] * tokens] * 128, "echo": True, "logprobs": 20, "max_tokens": 0}
        answer = server.call("/v1/completions", body)
        assert answer[0] == status, answer[2]
    assert "131072" in answer[2]["error"]["message"]
    body = {"model": MODEL, "prompt": [[5] * 49] * 128, "prompt_logprobs": 20, "max_tokens": 1}
    answer = server.call("/v1/completions", body)
    assert answer[0] == 400 and answer[2]["error"]["param"] == "prompt_logprobs"


def exchange(server, data):
    """The status that these bytes are answered with."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(data)
        return int(connection.recv(65536).split(b" ")[1])


def get_with_head_of(size):
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: \r\n\r\n"
    return head.replace(b"X: ", b"X: " + b"x" * (size - len(head)))


# name -> (what makes the bytes of a size, the largest that is taken, status of one more)
WIRES = {"head": (get_with_head_of, HEADER, 431)}


@pytest.mark.parametrize("name", sorted(WIRES))
def test_wires(server, name):
    make, most, status = WIRES[name]
    assert exchange(server, make(most)) == 200
    assert exchange(server, make(most + 1)) == status


def test_the_name_of_a_model(server):
    assert server.call(*named("m" * 1024))[0] == 404
    status, _, body = server.call(*named("m" * 1025))
    assert status == 400 and "1024" in body["error"]["message"]


def named(name):
    path, body = chat()
    return path, {**body, "model": name}


# Driven where their own attack is, or beside their sources where that is quicker.
ELSEWHERE = {
    "model name": __file__,
    "connections": "test_connections.py",
    "connections of a client": "test_connections.py",
    "descriptors": "test_connections.py",
    "time of a head": "test_connections.py",
    "time of a body": "test_connections.py",
    "taking an answer": "test_connections.py",
    "echo with logprobs": "test_limits.py",
    "trailers": "test_smuggling.py",
    "framing": "test_smuggling.py",
    "handshakes": "test_tls.py",
    "time of a handshake": "test_tls.py",
    "shutdown": "test_shutdown.py",
    "foreign pages": "test_web_pages.py",
    "prompt bytes": "test_long_prompts.py",
    "prompt tokens": "test_long_prompts.py",
    "texts of a client": "../../src/gateway/text_pool_test.cc",
    "texts of all": "../../src/gateway/text_pool_test.cc",
    "argument parts": "../../src/api/messages_test.cc",
    "repeated bytes": "../../src/api/response_request_test.cc",
    "kept responses of a key": "../../src/gateway/response_store_test.cc",
    "kept responses of all": "../../src/gateway/response_store_test.cc",
    "files of a key": "../../src/batches/book_test.cc",
    "files of all": "../../src/gateway/file_handlers_test.cc",
    "scored pairs": "../../src/api/rerank_test.cc",
    "batches of a key": "../../src/gateway/batch_handlers_test.cc",
    "past batches": "../../src/batches/book_test.cc",
    "batch lines": "../../src/batches/input_test.cc",
    "batch line": "test_batch_files.py",
    "custom_id": "../../src/batches/line_test.cc",
    "batch answer": "../../src/gateway/kept_exchange_test.cc",
    "batch metadata": "test_batch_files.py",
    "lines at once": "../../src/gateway/batch_runner_test.cc",
    "form parts": "../../src/api/form_test.cc",
    "quota of a key": "../../src/gateway/quotas_test.cc",
    "queue": "../../src/gateway/inference_handlers_test.cc",
    "share of a queue": "../../src/gateway/model_queue_test.cc",
    "grammar depth": "test_grammars.py",
    "grammar time": "test_grammars.py",
    "grammar memory": "../../src/sandbox/sandbox_test.cc",
    "grammars of a client": "test_grammars.py",
    "tokenizer files": "test_grammars.py",
    "engine head": "../../src/gateway/upstream_test.cc",
    "engine redirect": "../../src/gateway/redirect_test.cc",
    "silent worker": "test_hangs.py",
    "silent engine": "test_hangs.py",
    "threads": "test_process_limits.py",
    "loaded adapters": "../../src/solo/loaded_adapters_test.cc",
    "adapter names": "test_adapters.py",
}


def test_the_page_and_the_cases_are_the_same():
    rows = set(re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.M))
    assert rows == {*BODIES, *WIRES, *ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert (pathlib.Path(__file__).parent / file).exists(), name
