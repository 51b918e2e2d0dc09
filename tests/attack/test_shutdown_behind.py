"""SIGTERM with something behind the gateway that will not end: the server ends within its patience and a second."""

import os
import signal
import subprocess
import threading
import time
import urllib.request

import engines
import pytest
import server as heddle

PATIENCE = 2
SLACK = 1
NOISE = 0.5  # Of a busy machine.


def seconds_to_end(server):
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    return time.monotonic() - began


def in_background(work):
    def run():
        try:
            work()
        except OSError:
            pass  # The server has gone.

    threading.Thread(target=run, daemon=True).start()


def left_over(pids):
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def configured(models, device_extra="", extra=""):
    return heddle.config(
        memory="8MiB",
        models=models,
        device_extra=device_extra,
        extra=f"shutdown_timeout: {PATIENCE}s\nstartPort: {engines.free_port()}\n{extra}",
    )


def test_a_worker_in_a_step_of_half_a_minute():
    with heddle.Server(configured(["adder"], ", pace: {step: 30s}")) as server:
        in_background(lambda: server.chat("adder", "1+1="))
        wait_until(lambda: "load model=adder" in server.log())
        workers = server.workers()
        assert seconds_to_end(server) <= PATIENCE + SLACK + NOISE
        wait_until(lambda: not left_over(workers))


def test_a_worker_that_is_stopped():
    with heddle.Server(configured(["adder"], ", pace: {step: 20ms}")) as server:
        server.chat("adder", "1+1=")
        workers = server.workers()
        os.kill(workers[0], signal.SIGSTOP)
        in_background(lambda: server.chat("adder", "1+1="))
        assert seconds_to_end(server) <= PATIENCE + SLACK + NOISE
        wait_until(lambda: not left_over(workers))


def engine_model(name, options):
    command = engines.scripted(name, options)
    return f"  {name}: {{cmd: '{command}', memory: 1MiB}}\n"


@pytest.mark.parametrize("asked", [False, True], ids=["idle", "asked"])
def test_an_engine_that_ignores_sigterm(asked, tmp_path):
    pids = tmp_path / "pids"
    options = f"--sigterm ignore --pid-file {pids} --first-token-ms {60_000 if asked else 0}"
    with heddle.Server(configured([engine_model("deaf", options)])) as server:
        if asked:
            in_background(lambda: server.chat("deaf", "x"))
            wait_until(pids.exists)
        else:
            server.chat("deaf", "x")
        engine = [int(line) for line in pids.read_text().split()]
        assert seconds_to_end(server) <= PATIENCE + SLACK + NOISE
        wait_until(lambda: not left_over(engine))


def test_an_engine_that_is_starting():
    with heddle.Server(configured([engine_model("slow", "--open-after 120 --sigterm ignore")])) as server:
        in_background(lambda: server.chat("slow", "x"))
        wait_until(lambda: any("engine.py" in heddle.command_line(pid) for pid in descendants(server.process.pid)))
        engine = [pid for pid in descendants(server.process.pid) if "engine.py" in heddle.command_line(pid)]
        assert seconds_to_end(server) <= PATIENCE + SLACK + NOISE
        wait_until(lambda: not left_over(engine))


def descendants(pid):
    found = heddle.children(pid)
    return found + [below for child in found for below in descendants(child)]


def test_a_large_prompt_that_is_being_read():
    with heddle.Server(configured(["adder"])) as server:
        body = b'{"model":"adder","prompt":"' + b"1 " * 2_000_000 + b'"}'
        request = urllib.request.Request(server.url + "/tokenize", body, {"Content-Type": "application/json"})
        in_background(lambda: urllib.request.urlopen(request, timeout=60).read())
        time.sleep(0.3)  # However far it is.
        assert seconds_to_end(server) <= PATIENCE + SLACK + NOISE


def test_what_ends_by_itself_is_not_hurried():
    with heddle.Server(configured(["adder"])) as server:
        server.chat("adder", "1+1=")
        assert seconds_to_end(server) <= PATIENCE
        assert server.process.returncode == 0
        assert "not all has ended" not in server.log()
