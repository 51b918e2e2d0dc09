"""Clients that mean harm: each attack is sent once a call, and says what it was answered.

An attack returns the status it was answered with, 0 where the server hung up. What the server must
never do is end, answer 500, or let others wait; the soak counts the first two and times the others."""

import contextlib
import json
import random
import socket
import time
import urllib.parse

READ_SECONDS = 30


def connect(url, timeout=READ_SECONDS):
    parts = urllib.parse.urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=timeout)


def status_of(connection):
    """The status of the answer; 0 where the server hung up without one."""
    received = b""
    with contextlib.suppress(OSError):
        while b"\r\n" not in received:
            chunk = connection.recv(65536)
            if not chunk:
                break
            received += chunk
    words = received.split(b" ", 2)
    return int(words[1]) if len(words) > 2 and words[0].startswith(b"HTTP/1.") else 0


def request(path, body, length=None):
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def post(url, body, path="/v1/chat/completions"):
    with connect(url) as connection:
        with contextlib.suppress(OSError):  # It may answer, and close, before it has read all.
            connection.sendall(request(path, json.dumps(body).encode()))
        return status_of(connection)


def chat(model, **fields):
    return {"model": model, "messages": [{"role": "user", "content": "1+1="}], "max_tokens": 4, **fields}


# --- Grammars ---


def reference_chain(url, model, rng):
    links = rng.choice([200, 1000, 5000])
    parts = {f"a{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}}} for i in range(links)}
    parts[f"a{links}"] = {"type": "string"}
    schema = {"$defs": parts, "$ref": "#/$defs/a0", "description": str(rng.random())}
    return post(url, chat(model, guided_json=schema))


def wide_schema(url, model, rng):
    names = [f"{rng.random():.9f}" for _ in range(rng.choice([500, 3000, 7000]))]
    return post(url, chat(model, guided_json={"type": "object", "properties": dict.fromkeys(names, {"type": "integer"})}))


def rule_chain(url, model, rng):
    rules = rng.choice([300, 3000, 9000])
    name = rng.choice(["r", "T"])  # Rules, or terminals.
    lines = [f"start: {name}0"] + [f"{name}{i}: {name}{i + 1}" for i in range(rules)] + [f'{name}{rules}: "x"']
    return post(url, chat(model, guided_grammar="\n".join(lines)))


def greedy_regex(url, model, rng):
    return post(url, chat(model, guided_regex="(" * 40 + f"(a|b){{1,{rng.randrange(50, 2000)}}}" + "){1,9}" * 40))


# --- Lengths ---


def long_prompt(url, model, rng):
    letter = rng.choice(["1", " ", "ab ", "\u00e9", "a"])
    return post(url, {"model": model, "prompt": letter * rng.choice([200_000, 2_000_000])}, "/v1/completions")


def long_prompt_of_who_leaves(url, model, rng):
    body = json.dumps({"model": model, "prompt": rng.choice("1 x") * 2_000_000}).encode()
    with connect(url) as connection, contextlib.suppress(OSError):
        connection.sendall(request("/v1/completions", body))
    return 0


def large_body(url, model, rng):
    return post(url, chat(model, metadata=[[rng.random()] * 20 for _ in range(20_000)]))


# --- Connections ---


def silent_connections(url, _model, rng):
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connect(url))
        time.sleep(rng.uniform(0.5, 3))
    return 0


def dripping_head(url, _model, rng):
    with connect(url) as connection, contextlib.suppress(OSError):
        for byte in b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n":
            connection.sendall(bytes([byte]))
            time.sleep(rng.uniform(0, 0.1))
    return 0


def dripping_body(url, _model, rng):
    with connect(url) as connection, contextlib.suppress(OSError):
        connection.sendall(request("/v1/chat/completions", b"{", 30_000_000))
        for _ in range(30):
            connection.sendall(b" ")
            time.sleep(rng.uniform(0, 0.2))
    return 0


def reader_of_nothing(url, model, rng):
    body = chat(model, stream=True, n=16, ignore_eos=True)
    with connect(url) as connection, contextlib.suppress(OSError):
        connection.sendall(request("/v1/chat/completions", json.dumps({**body, "max_tokens": 60}).encode()))
        time.sleep(rng.uniform(0.5, 3))
    return 0


def smuggled(url, model, rng):
    hidden = b"POST /models/unload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    coding = rng.choice([b"xchunked", b"chunked, identity", b"gzip, chunked", b"chunked\r\nContent-Length: 5"])
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: " + coding + b"\r\n\r\n"
    with connect(url) as connection:
        connection.sendall(head + b"0\r\n\r\n" + hidden)
        return status_of(connection)


def page_of_somebody_else(url, _model, rng):
    mark = rng.choice([b"Origin: https://evil.example", b"Origin: null", b"Sec-Fetch-Site: cross-site"])
    path = rng.choice([b"POST /models/unload", b"GET /unload", b"GET /logs", b"POST /v1/chat/completions"])
    with connect(url) as connection:
        connection.sendall(path + b" HTTP/1.1\r\nHost: localhost\r\n" + mark + b"\r\nContent-Length: 0\r\n\r\n")
        return status_of(connection)


ATTACKS = (
    reference_chain, wide_schema, rule_chain, greedy_regex, long_prompt, long_prompt_of_who_leaves, large_body,
    silent_connections, dripping_head, dripping_body, reader_of_nothing, smuggled, page_of_somebody_else,
)  # fmt: skip


def client(server, models, number, seed, until, tally):
    """One attack after the other until the end."""
    rng = random.Random(f"{seed}-hostile-{number}")
    while time.monotonic() < until:
        attack = rng.choice(ATTACKS)
        try:
            status = attack(server.url, rng.choice(models), rng)
        except OSError as error:
            tally.add(f"{attack.__name__}: {type(error).__name__}")
            continue
        tally.add(f"{attack.__name__}: {status or 'hung up'}")
        if status == 500:
            tally.add("attacks answered with 500", f"{attack.__name__} with seed {seed}")
