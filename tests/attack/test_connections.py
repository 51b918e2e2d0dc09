"""Connections that want nothing, or want it slowly: they go first, and others are answered."""

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time

import pytest
import raw_http
import server as heddle

KEY = {"Authorization": "Bearer secret"}
SOON = 1.0
REQUEST = b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer secret\r\n\r\n"
SLOW_BODY = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer secret\r\n"
    b"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
)


def config(limits="", extra=""):
    return heddle.config(models=["adder"], extra=f"apiKeys: [secret]\nlimits: {{{limits}}}\n{extra}")


def seconds_of(server, path, headers=None):
    began = time.monotonic()
    status, _, answer = server.call(path, headers=headers, timeout=20)
    assert status == 200, answer
    return time.monotonic() - began


def open_files(wanted):
    """Raises this process's limit, for its side of the connections; how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


@contextlib.contextmanager
def many(server, count, say=b""):
    """So many connections that say so much and no more."""
    opened = []
    try:
        for _ in range(count):
            connection = raw_http.connect(server)
            opened.append(connection)
            if say:
                connection.sendall(say)
        yield opened
    finally:
        for connection in opened:
            connection.close()


def answers_soon(server, path="/version"):
    """Once its device is up, or it has seen clients hang up."""
    until = time.monotonic() + 10
    while server.call(path, headers=KEY)[0] != 200:
        assert time.monotonic() < until


@pytest.mark.parametrize("say", [b"", b"G", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["silent", "begun", "idle"])
def test_silent_connections_hold_nobody_up(say):
    room = 4096 if open_files(6000) >= 6000 else 256
    with heddle.Server(config(f"connections: {room}")) as server:
        kept = raw_http.connect(server)
        kept.sendall(REQUEST)
        assert kept.recv(65536).startswith(b"HTTP/1.1 200")
        with many(server, room + 104, say):
            for _ in range(3):
                assert seconds_of(server, "/version", KEY) < SOON
                assert seconds_of(server, "/healthz") < SOON
                if not say:  # Who has never asked goes before who has.
                    kept.sendall(REQUEST)
                    assert kept.recv(65536).startswith(b"HTTP/1.1 200")


def test_where_all_are_busy_probes_are_answered_and_a_key_has_its_share():
    with heddle.Server(config("connections: 16, connections_per_client: 12, header_timeout: 60s")) as server:
        answers_soon(server, "/readyz")
        with many(server, 16, SLOW_BODY) as clients:
            answers = [raw_http.statuses(client.recv(65536)) for client in clients]
            assert answers == [[100]] * 12 + [[429]] * 4
            assert seconds_of(server, "/healthz") < SOON
        answers_soon(server)
        # Whoever asks what is allowed shows no key and counts by address.
        other = SLOW_BODY.replace(b"POST /v1/chat/completions", b"OPTIONS /version")
        with many(server, 12, SLOW_BODY) as one, many(server, 4, other) as two:
            answers = [raw_http.statuses(client.recv(65536)) for client in one + two]
            assert answers == [[100]] * 16
            status, headers, answer = server.call("/version", headers=KEY)
            assert status == 503 and "limits.connections" in answer["error"]["message"]
            assert headers["Retry-After"]
            for path in ("/health", "/healthz", "/readyz"):
                assert seconds_of(server, path) < SOON
        answers_soon(server)


def test_few_descriptors_are_not_all_taken():
    """A killed worker starts again while clients want every descriptor."""
    limit = 64

    def fewer():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    real = subprocess.Popen
    subprocess.Popen = lambda *args, **kwargs: real(*args, preexec_fn=fewer, **kwargs)
    try:
        server = heddle.Server(config())
    finally:
        subprocess.Popen = real
    with server:
        flood_ends = threading.Event()

        def flood():
            held = []
            while not flood_ends.is_set():
                with contextlib.suppress(OSError):
                    held.append(raw_http.connect(server, timeout=0.2))
                held = held[-200:]
                time.sleep(0.001)

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            assert server.call("/v1/models", headers=KEY, timeout=10)[0] == 200
            for _ in range(2):
                (worker,) = server.workers()
                os.kill(worker, signal.SIGKILL)
                until = time.monotonic() + 20
                while True:
                    body = {"model": "adder", "messages": [{"role": "user", "content": "12+34="}], "temperature": 0}
                    status, _, answer = server.call("/v1/chat/completions", body, headers=KEY, timeout=20)
                    if status == 200:
                        break
                    assert time.monotonic() < until, answer
                assert answer["choices"][0]["message"]["content"].endswith("46")
                assert server.workers() not in ([], [worker])
                assert seconds_of(server, "/healthz") < SOON
            descriptors = len(os.listdir(f"/proc/{server.process.pid}/fd"))
            assert descriptors < limit - 8, descriptors
            assert server.log().count("few descriptors") == 1 and "LimitNOFILE" in server.log(), server.log()
        finally:
            flood_ends.set()
            flooding.join()


def test_heads_and_bodies_that_drip_are_given_up():
    with heddle.Server(config("header_timeout: 1s")) as server:
        with many(server, 2) as (head, body):
            head.sendall(b"GET /version HTTP/1.1\r\n")
            body.sendall(SLOW_BODY.replace(b"Content-Length: 1000", b"Transfer-Encoding: chunked"))
            began = time.monotonic()
            open_ones = {head: b"A: b\r\n", body: b"1\r\nx\r\n"}
            while open_ones:
                assert time.monotonic() - began < 5
                for connection, more in list(open_ones.items()):
                    try:
                        connection.sendall(more)
                    except OSError:
                        del open_ones[connection]
                time.sleep(0.1)
            assert time.monotonic() - began > 0.9


def test_answers_that_are_taken_a_byte_at_a_time_are_given_up():
    """Within a time that does not grow with how often a byte is taken."""
    with heddle.Server(config("stall_timeout: 1s, header_timeout: 1s")) as server:
        connection = raw_http.connect(server, receive_buffer=2048)
        # Its answers fill whatever lies between.
        flood = REQUEST.replace(b"/version", b"/metrics") * 2000
        ended = threading.Event()

        def send():
            with contextlib.suppress(OSError):
                connection.sendall(flood)
            ended.set()

        sender = threading.Thread(target=send)
        sender.start()
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while connection.recv(1):
                assert time.monotonic() - began < 20
                time.sleep(0.02)
                if ended.is_set():
                    break
        connection.close()
        sender.join()
        assert time.monotonic() - began < 20
