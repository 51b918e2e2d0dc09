"""Workers that die, clients that vanish, servers that are told to stop."""

import concurrent.futures
import json
import os
import signal
import socket
import time
import urllib.request

import pytest
import server as heddle

PACED = ", pace: {step: 15ms}"  # So that a stream lasts long enough to be disturbed.


@pytest.fixture
def paced():
    with heddle.Server(heddle.config(device_extra=PACED)) as running:
        yield running


def stream(server, model, prompt, on_token=None, **options):
    """Text of a streamed answer, and its finish reason."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "stream": True,
        **options,
    }
    request = urllib.request.Request(
        server.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    text, finish, tokens = "", None, 0
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            assert "error" not in event, event
            for choice in event["choices"]:
                piece = choice["delta"].get("content") or ""
                text += piece
                finish = choice["finish_reason"] or finish
                if piece and on_token:
                    tokens += 1
                    on_token(tokens)
    return text, finish


@pytest.mark.parametrize("model", heddle.demo_models())
def test_a_stream_goes_on_when_its_worker_is_killed(paced, model):
    prompt, _ = max(heddle.eval_set(model, 50), key=lambda pair: len(pair[1]))
    undisturbed = stream(paced, model, prompt)

    def kill_at_third(tokens):
        if tokens == 3:
            os.kill(paced.workers()[0], signal.SIGKILL)

    assert stream(paced, model, prompt, kill_at_third) == undisturbed


def test_sampled_streams_go_on_with_the_same_randomness(paced):
    model = heddle.demo_models()[0]
    prompt, _ = heddle.eval_set(model, 1)[0]
    options = {"temperature": 2, "seed": 11, "max_tokens": 30, "ignore_eos": True}
    undisturbed = stream(paced, model, prompt, **options)

    def kill_at_fifth(tokens):
        if tokens == 5:
            os.kill(paced.workers()[0], signal.SIGKILL)

    assert stream(paced, model, prompt, kill_at_fifth, **options) == undisturbed


def test_repeated_kills_lose_nothing_under_load(paced):
    work = [(model, *pair) for model in heddle.demo_models() for pair in heddle.eval_set(model, 8)]

    def ask(item):
        model, prompt, answer = item
        return stream(paced, model, prompt)[0] == answer

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, item) for item in work]
        for _ in range(3):
            time.sleep(1.5)  # Between kills, so that each hits a different moment of the load.
            for worker in paced.workers():
                os.kill(worker, signal.SIGKILL)
        right = sum(answer.result() for answer in answers)
    assert right >= 0.97 * len(work)


def test_a_vanished_client_frees_its_place(paced):
    model = heddle.demo_models()[0]
    prompt, _ = heddle.eval_set(model, 1)[0]
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "ignore_eos": True,
            "max_tokens": 400,
        }
    ).encode()
    host, port = paced.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        connection.recv(4096)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        running = [v for n, v in paced.metrics().items() if n.startswith("vllm:num_requests_running")]
        if sum(running) == 0:
            return
        time.sleep(0.05)
    pytest.fail("the request of a vanished client still runs after 5 s")


def test_sigterm_lets_running_requests_end(paced):
    model = heddle.demo_models()[0]
    prompt, answer = max(heddle.eval_set(model, 50), key=lambda pair: len(pair[1]))

    def stop_at_second(tokens):
        if tokens == 2:
            paced.process.send_signal(signal.SIGTERM)

    assert stream(paced, model, prompt, stop_at_second)[0] == answer
    assert paced.process.wait(20) == 0
    assert paced.workers() == []


def test_killing_the_server_leaves_no_worker():
    with heddle.Server(heddle.config()) as running:
        deadline = time.monotonic() + 20
        while not (workers := running.workers()):
            assert time.monotonic() < deadline, "no worker came"
            time.sleep(0.02)
        running.process.kill()
        running.process.wait()
        deadline = time.monotonic() + 5
        while any(heddle.command_line(worker) for worker in workers):
            assert time.monotonic() < deadline, "a worker outlived its server"
            time.sleep(0.02)


def test_reload_adds_and_removes_models_while_requests_run(paced):
    first, second = heddle.demo_models()[:2]
    prompt, answer = max(heddle.eval_set(first, 50), key=lambda pair: len(pair[1]))
    text = heddle.config(models=[first], device_extra=PACED)

    def reload_at_second(tokens):
        if tokens == 2:
            paced.config_path.write_text(text)
            paced.process.send_signal(signal.SIGHUP)

    assert stream(paced, first, prompt, reload_at_second)[0] == answer
    deadline = time.monotonic() + 10
    while paced.call(f"/v1/models/{second}")[0] != 404:
        assert time.monotonic() < deadline, "the removed model is still listed"
        time.sleep(0.05)
    paced.config_path.write_text(heddle.config(device_extra=PACED))
    paced.process.send_signal(signal.SIGHUP)
    while paced.call(f"/v1/models/{second}")[0] != 200:
        assert time.monotonic() < deadline, "the added model is not listed"
        time.sleep(0.05)
    prompt, answer = heddle.eval_set(second, 1)[0]
    assert stream(paced, second, prompt)[0] == answer


def test_a_broken_reload_changes_nothing(paced):
    model = heddle.demo_models()[0]
    prompt, answer = heddle.eval_set(model, 1)[0]
    paced.config_path.write_text("modles: {}\n")
    paced.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while "modles" not in paced.log():
        assert time.monotonic() < deadline, "no word about the unknown key"
        time.sleep(0.05)
    assert stream(paced, model, prompt)[0] == answer
