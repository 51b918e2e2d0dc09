"""KV of a model that lacks memory lies on another device, which runs its part of attention."""

import concurrent.futures
import os
import signal
import time

import pytest
import server as heddle

HOT, COLD, OTHER = "reverser", "sorter", "adder"
REQUESTS, TOKENS = 20, 200


def config(weave=True, pace="6ms"):
    """Two devices, one core each, that the weights of a model half fill. Nothing is cached, so that equal requests do the
    same work."""
    rows = "".join(
        f"  - {{name: {name}, cores: '{core}', memory: 3328KiB, page: 64KiB, prefix_cache: 'off', "
        f"pace: {{step: {pace}, token: 50us}}, step_budget: 300ms}}\n"
        for name, core in (("a", 0), ("b", 1))
    )
    planner = f"planner: {{weave: {str(weave).lower()}, prewarm: false, replicas: false, pressure: false}}\n"
    return heddle.config(models=[HOT, COLD, OTHER], devices=rows, extra=planner)


def ask(server, model, number, tokens):
    letters = "".join(chr(97 + (number * 7 + k * k) % 26) for k in range(40))
    body = {"model": model, "prompt": f"reverse: {letters}", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    status, _, answer = server.call("/v1/completions", {**body, "logprobs": 1}, timeout=180)
    assert status == 200, answer
    return answer["choices"][0]["text"], answer["choices"][0]["logprobs"]


def burst(server, meanwhile=lambda: None):
    """What so many requests for the hot model are answered, which are asked at once."""
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        asked = [pool.submit(ask, server, HOT, i, TOKENS) for i in range(REQUESTS)]
        meanwhile()
        return [each.result() for each in asked]


def decided(server, kind):
    return [each for each in server.call("/api/decisions")[2]["decisions"] if each["decision"] == kind]


def guests(server):
    """What the hot model has on another device, and that device's place in the list; None: nothing."""
    for place, device in enumerate(server.call("/api/devices")[2]["devices"]):
        for guest in device["guests"]:
            if guest["in_use"] > 0:
                return place, guest["in_use"]
    return None


def wait_for(what, patience=30):
    until = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < until, "in vain"
        time.sleep(0.02)
    return found


def all_up(server):
    return wait_for(lambda: all(each["up"] for each in server.call("/api/devices")[2]["devices"]), patience=60)


@pytest.fixture(scope="module")
def alone():
    """What the requests are answered where nothing is woven."""
    with heddle.Server(config(weave=False)) as server:
        all_up(server)
        ask(server, COLD, 0, 4)
        answers = burst(server)
        assert not decided(server, "lend")
        return answers


@pytest.fixture
def woven():
    with heddle.Server(config()) as server:
        all_up(server)
        ask(server, COLD, 0, 4)
        yield server


def test_answers_are_the_same_to_the_bit(woven, alone):
    assert burst(woven, lambda: wait_for(lambda: guests(woven))) == alone
    lent = decided(woven, "lend")
    assert lent[0]["model"] == HOT and "pages for KV" in lent[0]["why"]
    held = woven.metrics()
    assert any(name.startswith("heddle_pages_held{") and "kv_guest" in name for name in held)


def test_the_hosts_own_requests_have_their_memory_back(woven, alone):
    def cold_wants_it():
        wait_for(lambda: guests(woven))
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda i: ask(woven, COLD, i, 150), range(12)))
        assert len(answers) == 12

    assert burst(woven, cold_wants_it) == alone
    assert decided(woven, "recall")


def test_a_load_has_the_memory_that_it_needs(woven, alone):
    def another_model():
        wait_for(lambda: guests(woven))
        assert ask(woven, OTHER, 0, 4)

    assert burst(woven, another_model) == alone


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_answers_survive_the_host(woven, alone, how):
    def lose_the_host():
        place, _ = wait_for(lambda: guests(woven))
        host = woven.workers()[place]
        os.kill(host, how)
        if how == signal.SIGSTOP:
            time.sleep(1)
            os.kill(host, signal.SIGCONT)

    assert burst(woven, lose_the_host) == alone


def test_the_answers_survive_the_hot_worker(woven, alone):
    def lose_the_hot_worker():
        place, _ = wait_for(lambda: guests(woven))
        os.kill(woven.workers()[1 - place], signal.SIGKILL)

    assert burst(woven, lose_the_hot_worker) == alone
    wait_for(lambda: guests(woven) is None)


def test_the_answers_survive_both(woven, alone):
    def lose_both():
        wait_for(lambda: guests(woven))
        for worker in woven.workers():
            os.kill(worker, signal.SIGKILL)

    assert burst(woven, lose_both) == alone
