"""Requests that two programs might read differently: refused, and nothing behind them is run (RFC 9112)."""

import itertools

import pytest
import raw_http
import server as heddle

# It would be seen in the count of requests, and in a second answer.
SECOND = "GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"

SHAPES = {
    "unknown coding": (POST + "Transfer-Encoding: xchunked\r\n\r\n", 501),
    "coding after chunked": (POST + "Transfer-Encoding: chunked, identity\r\n\r\n", 501),
    "coding before chunked": (POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "identity": (POST + "Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n", 501),
    "no coding": (POST + "Transfer-Encoding:\r\n\r\n", 501),
    "chunked twice in one": (POST + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501),
    "vertical tab": (POST + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n", 400),
    "chunked twice": (POST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "both": (POST + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
    "both, the other way": (POST + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "HTTP/1.0": (POST.replace("1.1", "1.0", 1) + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (POST + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n", 400),
    "the same length twice": (POST + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n", 400),
    "a list of lengths": (POST + "Content-Length: 0, 0\r\n\r\n", 400),
    "a signed length": (POST + "Content-Length: +0\r\n\r\n", 400),
    "a space before the colon": (POST + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    "a folded field": (POST + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400),
    "a bare line feed": (POST + "X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a bare carriage return": (POST + "X: y\rz\r\n\r\n", 400),
    "a zero byte": (POST + "X: y\0z\r\n\r\n", 400),
    "no Host": ("GET /health HTTP/1.1\r\n\r\n", 400),
    "two Hosts": ("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", 400),
    "no host": ("GET /health HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    "authority as target": ("CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n", 400),
    "no path": ("GET health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
    "a tab in the target": ("GET /health\t HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
    "HTTP/2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/1.2": ("GET /health HTTP/1.2\r\nHost: 127.0.0.1\r\n\r\n", 505),
    "HTTP/0.9": ("GET /health\r\n\r\n", 400),
}
CHUNKED = POST + "Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = {
    "a longer chunk": ("1\r\nab\r\n0\r\n\r\n", 400),
    "a bare line feed after a size": ("1\na\r\n0\r\n\r\n", 400),
    "a bare line feed in an extension": ('1;a="\n"\r\na\r\n0\r\n\r\n', 400),
    "a size of more than 64 bits": ("10000000000000001\r\na\r\n0\r\n\r\n", 400),
    "a signed size": ("+1\r\na\r\n0\r\n\r\n", 400),
    "0x": ("0x1\r\na\r\n0\r\n\r\n", 400),
    "a folded trailer": ("0\r\nA: b\r\n c\r\n\r\n", 400),
    "extensions without end": ("1;" + "x" * 40000, 431),
    "trailers without end": ("0\r\n" + "A: b\r\n" * 200_000, 431),  # 1.2 MB.
}


@pytest.fixture(scope="module")
def server():
    with heddle.Server(heddle.config(models=["adder"])) as server:
        yield server


@pytest.mark.parametrize("shape", [*SHAPES, *CHUNKS])
def test_one_answer_and_no_more(server, shape):
    text, status = SHAPES.get(shape) or (CHUNKED + CHUNKS[shape][0], CHUNKS[shape][1])
    before = versions_told(server)
    connection = raw_http.connect(server)
    try:
        connection.sendall((text + SECOND).encode("latin-1"))
    except (BrokenPipeError, ConnectionResetError):
        pass  # It was refused before all of it was sent.
    answers = raw_http.until_closed(connection)
    assert raw_http.statuses(answers) == [status], answers
    assert versions_told(server) == before, "the request behind it was run"
    assert server.call("/health")[0] == 200


def versions_told(server):
    return sum(count for name, count in server.metrics().items() if "http_requests_total" in name and "/version" in name)


def test_what_is_right_is_still_taken(server):
    body = '{"model": "adder", "messages": [{"role": "user", "content": "1+1="}], "max_tokens": 1}'
    length = POST + f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    chunked = (
        POST + f"Content-Type: application/json\r\ntransfer-encoding:\tChunked\r\n\r\n{len(body):x};ext=1\r\n{body}\r\n0\r\nX: y\r\n\r\n"
    )
    absolute = SECOND.replace("/version", "http://127.0.0.1/version")
    last = SECOND.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
    text = "".join([length, chunked, absolute, "\r\n", SECOND, last])
    for step in (1, 13, len(text)):
        connection = raw_http.connect(server)
        for at in range(0, len(text), step):
            connection.sendall(text[at : at + step].encode())
        assert raw_http.statuses(raw_http.until_closed(connection)) == [200] * 5


def test_heads_without_end(server):
    """However their pieces are cut."""
    connection = raw_http.connect(server)
    sent = 0
    try:
        connection.sendall(b"GET /health HTTP/1.1\r\nA")
        for piece in itertools.repeat(b": b\r\nA", 20_000):
            connection.sendall(piece)
            sent += len(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert raw_http.statuses(raw_http.until_closed(connection))[:1] in ([431], []), sent
