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


# name -> (what makes a request of a size, the largest that is taken, status and word of one more)
BODIES = {
    "body": (padded, BODY, 413, "limits.body"),
    "body depth": (nested, 64, 400, "JSON"),
    "n": (lambda n: chat(n=n), 16, 400, "n"),
    "stop": (lambda n: chat(stop=[f"~{i}" for i in range(n)]), 16, 400, "stop"),
    "stop bytes": (lambda n: chat(stop="~" * n), 1024, 400, "stop"),
    "stop_token_ids": (lambda n: chat(stop_token_ids=[1] * n), 128, 400, "stop_token_ids"),
    "cache_salt": (lambda n: chat(cache_salt="s" * n), 256, 400, "cache_salt"),
    "top_logprobs": (lambda n: chat(logprobs=True, top_logprobs=n), 20, 400, "top_logprobs"),
    "tools": (lambda n: chat(tools=[tool(f"t{i}") for i in range(n)], tool_choice="none"), 128, 400, "tools"),
    "tool name": (lambda n: chat(tools=[tool("t" * n)], tool_choice="none"), 64, 400, "name"),
    "guided_choice": (lambda n: chat(guided_choice=[f"{i}" for i in range(n)]), 1024, 400, "guided_choice"),
    "prompts": (lambda n: completion(["1+2="] * n), 128, 400, "prompt"),
    "grammar bytes": (lambda n: chat(guided_grammar='start: "x"\n//' + "y" * (n - 13)), 256 << 10, 400, "262144"),
    "grammar brackets": (lambda n: chat(guided_regex="(" * n + "x" + ")" * n), 100, 400, "100"),
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


# Driven where their own attack is.
ELSEWHERE = {}


def test_the_page_and_the_cases_are_the_same():
    rows = set(re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.M))
    assert rows == {*BODIES, *WIRES, *ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert (pathlib.Path(__file__).parent / file).exists(), name
