"""Web pages that their user's browser lets ask a server of this machine: by other origins, by names that they have resolve
to 127.0.0.1, by forms and images. Nothing of them is let in unless it is configured."""

import json
import os
import signal
import socket
import time

import pytest
import server as heddle

MODEL = "adder"
PORT = "{port}"  # In the cases below: the server's.


@pytest.fixture(scope="module")
def server():
    with heddle.Server(heddle.config(models=[MODEL])) as running:
        yield running


def port_of(server):
    return server.url.rsplit(":", 1)[1]


def ask(server, method="GET", path="/v1/models", headers=(), body=b"", host=f"127.0.0.1:{PORT}"):
    """(status, {lower-case header: value}, body) of a request that is written by hand."""
    lines = [f"{method} {path} HTTP/1.1", *([] if host is None else [f"Host: {host}"]), *headers, "Connection: close"]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines).replace(PORT, port_of(server)) + "\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(port_of(server))), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        raw = b""
        while part := connection.recv(65536):
            raw += part
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *fields = head.decode("latin-1").split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, v in (f.split(": ", 1) for f in fields)}, rest


def code_of(answer):
    return json.loads(answer[2])["error"]["code"]


def loads(server):
    """How often a model was loaded, which no page may cause."""
    return sum(value for name, value in server.metrics().items() if name.startswith("heddle_model_loads_total"))


def chat(prompt="1+1="):
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": 4}).encode()


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        f"localhost:{PORT}",
        f"LOCALHOST:{PORT}",
        f"localhost.:{PORT}",
        f"app.localhost:{PORT}",
        "127.0.0.1",
        "127.1.2.3:1",
        "[::1]",
        f"[::1]:{PORT}",
        f"[0:0:0:0:0:0:0:1]:{PORT}",
    ],
)
def test_local_names_are_let_in(server, host):
    assert ask(server, host=host)[0] == 200


@pytest.mark.parametrize("path", ["/logs", "/api/requests", "/v1/models", "/health", "/", "/ui/"])
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        f"EVIL.example.:{PORT}",
        "localhost.evil.example",
        f"127.0.0.1.evil.example:{PORT}",
        "notlocalhost",
        f"192.168.1.5:{PORT}",
        "[fe80::1]",
        "0.0.0.0",
        f"localhost:{PORT}@evil.example",
        "evil.example#localhost",
        "localhost/",
        "local host",
    ],
)
def test_a_page_that_rebinds_its_name_reads_nothing(server, host, path):
    status, headers, body = ask(server, path=path, host=host, headers=["Accept: text/html"])
    assert status in (400, 403), (status, body)
    assert not any(name.startswith("access-control-") for name in headers)
    if status == 403:
        assert "allowed_hosts" in json.loads(body)["error"]["message"]


def test_nor_by_the_name_in_the_first_line(server):
    """The form that proxies get, whose host counts before the header."""
    assert ask(server, path="http://evil.example/logs")[0] in (400, 403, 404)


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat", "/api/tags", "/v1/models", "/unload", "/health", "/ui/", "/upstream/x/"])
@pytest.mark.parametrize(
    "origin",
    [
        ["https://evil.example"],
        ["http://evil.example"],
        ["null"],
        [""],
        ["http://localhost"],
        ["http://localhost:1"],
        [f"http://localhost:{PORT}.evil.example"],
        [f"http://localhost:{PORT}@evil.example"],
        [f"http://127.0.0.1:{PORT}, http://evil.example"],
        [f"http://127.0.0.1:{PORT}", "http://evil.example"],
        ["http://evil.example", f"http://127.0.0.1:{PORT}"],
        ["file://"],
        ["chrome-extension://abcdefgh"],
    ],
    ids=str,
)
def test_foreign_origins_get_nothing(server, origin, path, method):
    headers = [f"Origin: {each}" for each in origin]
    if method == "OPTIONS":
        headers += ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type"]
    status, answered, _ = ask(server, method, path, headers, chat() if method == "POST" else b"")
    assert status == 403
    assert not any(name.startswith("access-control-") for name in answered)


def test_they_have_no_model_run(server):
    before = loads(server)
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        headers = ["Origin: https://evil.example"] + ([f"Content-Type: {content_type}"] if content_type else [])
        for path in ("/v1/chat/completions", "/models/load"):
            assert ask(server, "POST", path, headers, chat())[0] == 403
    assert loads(server) == before


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_its_own_page_is_let_in(server, host):
    headers = [f"Origin: http://{host}:{PORT}", "Sec-Fetch-Site: same-origin", "Content-Type: application/json"]
    assert ask(server, "POST", "/tokenize", headers, b'{"model": "adder", "prompt": "1"}', f"{host}:{PORT}")[0] == 200


def test_images_and_frames_of_other_pages_get_nothing(server):
    for path in ("/unload", "/metrics", "/upstream/x/", "/ui/", "/logs"):
        for site in ("cross-site", "same-site"):
            headers = [f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"]
            assert ask(server, path=path, headers=headers)[0] == 403
    frame = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"]
    assert ask(server, path="/ui/", headers=frame)[0] == 403
    link = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"]
    assert ask(server, path="/ui/", headers=link)[0] == 200
    assert ask(server, path="/metrics", headers=link)[0] == 403


def test_bodies_are_json(server):
    def status(*headers):
        return ask(server, "POST", "/tokenize", headers, b'{"model": "adder", "prompt": "1"}')[0]

    curl = "Content-Type: application/x-www-form-urlencoded"  # What `curl -d` says.
    assert status("Content-Type: application/json") == status("Content-Type: application/JSON;charset=utf-8") == 200
    assert status(curl) == status() == 200
    assert status("Content-Type: text/plain") == status("Content-Type: multipart/form-data; boundary=x") == 415
    for mark in ("Referer: https://evil.example/", "Cookie: a=b", "Sec-Fetch-Mode: cors"):
        assert status(mark) == status(mark, curl) == status(mark, "Content-Type: text/plain") == 415
        assert status(mark, "Content-Type: application/json") == 200


def test_nothing_changes_by_get(server):
    server.chat(MODEL, "1+1=")
    status, headers, _ = ask(server, path="/unload")
    assert status == 405 and "POST" in headers["allow"]
    for path in ("/models/load", "/models/unload", "/api/models/unload", f"/api/models/unload/{MODEL}", "/sleep", "/wake_up"):
        assert ask(server, path=path)[0] == 405
    assert [each["model"] for each in server.call("/running")[2]["running"]] == [MODEL]
    assert ask(server, "POST", "/unload")[0] == 200
    assert server.call("/running")[2]["running"] == []


# --- what is configured ---

ORIGIN = "https://chat.example"


@pytest.fixture(scope="module")
def open_server():
    extra = f"cors_origins: ['{ORIGIN}']\nallowed_hosts: [models.example]\napiKeys: [ask]\n"
    with heddle.Server(heddle.config(models=[MODEL], extra=extra)) as running:
        yield running


def test_a_configured_origin_may_ask_and_read(open_server):
    preflight = [
        f"Origin: {ORIGIN}",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization, content-type, x-stainless-lang",
        "Access-Control-Request-Private-Network: true",
    ]
    status, headers, _ = ask(open_server, "OPTIONS", "/v1/chat/completions", preflight)
    assert status == 204
    assert headers["access-control-allow-origin"] == ORIGIN
    assert headers["access-control-allow-headers"] == "authorization, content-type, x-stainless-lang"
    assert "POST" in headers["access-control-allow-methods"]
    assert headers["access-control-allow-private-network"] == "true"
    assert "origin" in headers["vary"].lower()
    page = [f"Origin: {ORIGIN}", "Authorization: Bearer ask", "Content-Type: application/json", "Sec-Fetch-Site: cross-site"]
    for body in (chat(), chat()[:-1] + b', "stream": true}', b"{", b'{"model": "nobody", "messages": []}'):
        status, headers, said = ask(open_server, "POST", "/v1/chat/completions", page, body)
        assert headers["access-control-allow-origin"] == ORIGIN, (status, said)
        assert "x-request-id" in headers["access-control-expose-headers"].lower()
    without_key = ask(open_server, headers=[f"Origin: {ORIGIN}"])
    assert without_key[0] == 401 and without_key[1]["access-control-allow-origin"] == ORIGIN
    wrong_role = ask(open_server, path="/logs", headers=page)
    assert wrong_role[0] == 403 and wrong_role[1]["access-control-allow-origin"] == ORIGIN


def test_others_may_not(open_server):
    for origin in ("http://chat.example", "https://chat.example:8443", "https://x.chat.example", "https://chat.example.evil", "null"):
        answer = ask(open_server, headers=[f"Origin: {origin}", "Authorization: Bearer ask"])
        assert answer[0] == 403 and code_of(answer) == "foreign_origin"
        assert "access-control-allow-origin" not in answer[1]
    key = ["Authorization: Bearer ask"]
    assert ask(open_server, host="models.example", headers=key)[0] == 200
    assert ask(open_server, host="evil.example", headers=key)[0] == 403


def test_sighup_takes_over_hosts_and_origins():
    text = heddle.config(models=[MODEL])
    with heddle.Server(text) as server:
        assert ask(server, headers=[f"Origin: {ORIGIN}"])[0] == 403
        assert ask(server, host="models.example")[0] == 403
        server.config_path.write_text(text + f"cors_origins: ['{ORIGIN}']\nallowed_hosts: [models.example]\n")
        os.kill(server.process.pid, signal.SIGHUP)
        deadline = time.monotonic() + 30
        while ask(server, host="models.example")[0] != 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ask(server, host="models.example", headers=[f"Origin: {ORIGIN}"])[0] == 200
