"""SIGTERM ends the server within shutdown_timeout and a second, whatever its clients do."""

import contextlib
import signal
import threading
import time

import pytest
import raw_http
import server as heddle

PATIENCE = 2
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def config():
    return heddle.config(models=["adder"], extra=f"shutdown_timeout: {PATIENCE}s\n")


def drip(connection, ends):
    """A byte each fifth of a second for as long as anybody takes them."""
    with contextlib.suppress(OSError):
        while not ends.is_set():
            connection.sendall(b" ")
            time.sleep(0.2)


def end(server, signals=(signal.SIGTERM,)):
    """How long the server took to end."""
    began = time.monotonic()
    for number in signals:
        server.process.send_signal(number)
        time.sleep(0.05)
    server.process.wait(30)
    return time.monotonic() - began


@pytest.mark.parametrize("how", ["body", "chunks", "head", "nothing", "logs", "stream"])
def test_clients_cannot_put_it_off(how):
    says = {
        "body": CHAT + b"Content-Length: 100000\r\n\r\n{",
        "chunks": CHAT + b"Transfer-Encoding: chunked\r\n\r\n1000\r\n",
        "head": b"GET /health HTTP/1.1\r\nX: ",
        "nothing": b"",
        "logs": b"GET /logs/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "stream": None,
    }
    with heddle.Server(config()) as server:
        body = b'{"model": "adder", "stream": true, "n": 8, "messages": [{"role": "user", "content": "1+1="}]}'
        say = says[how] if says[how] is not None else CHAT + b"Content-Length: %d\r\n\r\n" % len(body) + body
        clients = [raw_http.connect(server, receive_buffer=2048) for _ in range(8)]
        for client in clients:
            client.sendall(say)
        server.call("/health")  # What was sent before has been read.
        ends = threading.Event()
        drips = how in ("body", "chunks", "head")
        dripping = [threading.Thread(target=drip, args=(client, ends)) for client in clients if drips]
        for thread in dripping:
            thread.start()
        took = end(server)
        ends.set()
        for thread in dripping:
            thread.join()
        assert took < PATIENCE + 1, took
        if how in ("body", "chunks", "head", "nothing"):
            assert took < PATIENCE, f"nothing runs, and it took {took:.1f} s"
        if how in ("body", "chunks"):
            assert b" 503 " in raw_http.until_closed(clients[0]), "it is told why"
        assert server.process.returncode == 0


def test_an_answer_that_runs_may_end():
    with heddle.Server(config()) as server:
        answers = []
        asking = threading.Thread(target=lambda: answers.append(server.chat("adder", "12+34=")))
        asking.start()
        until = time.monotonic() + 10
        while not any("chat" in name and value for name, value in server.metrics().items()) and asking.is_alive():
            assert time.monotonic() < until
        end(server)
        asking.join()
        assert len(answers) == 1 and answers[0].endswith("46")


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(second):
    with heddle.Server(heddle.config(models=["adder"], extra="shutdown_timeout: 60s\n")) as server:
        client = raw_http.connect(server)
        client.sendall(b"GET /logs/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert client.recv(1)
        assert end(server, (signal.SIGTERM, second)) < 2
