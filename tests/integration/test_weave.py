"""KV of a model that lacks memory lies on another device, which runs its part of attention."""

import concurrent.futures
import os
import signal
import time

import pytest

HOT, COLD = "hot", "cold"
# Two devices that the weights of a model half fill; a step takes long enough that many requests
# run at once. Nothing is cached, so that equal requests do the same work.
DEVICE = {"memory": "3328KiB", "page": "64KiB", "prefix_cache": "off", "step_budget": "300ms"}


def devices(step="10ms"):
    return [
        {"name": name, "cores": core, "pace": {"step": step, "token": "50us"}, **DEVICE}
        for name, core in (("a", "0"), ("b", "1"))
    ]


def config(weave=True, **pace):
    return {
        "host": {"memory": "16MiB"},
        "devices": devices(**pace),
        "models": {
            HOT: {"path": "models/reverser", "batch": 32},
            COLD: {"path": "models/sorter", "batch": 32},
        },
        "planner": {"weave": weave, "prewarm": False, "replicas": False, "pressure": False},
    }


def ask(server, model, number, tokens):
    letters = "".join(chr(97 + (number * 7 + k * k) % 26) for k in range(40))
    answer = server.post(
        "/v1/completions",
        {
            "model": model,
            "prompt": f"reverse: {letters}",
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": 1,
        },
        timeout=120,
    )
    return answer["choices"][0]["text"], answer["choices"][0]["logprobs"]


def burst(server, count=20, tokens=200, meanwhile=lambda: None):
    """What all of so many requests for the hot model are answered, asked at once."""
    ask(server, COLD, 0, 4)
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        asked = [pool.submit(ask, server, HOT, i, tokens) for i in range(count)]
        meanwhile()
        return [each.result() for each in asked]


def decided(server, kind):
    return [each for each in server.get("/api/decisions")["decisions"] if each["decision"] == kind]


def guests(server):
    """Pages that KV of the hot model has on another device now."""
    return sum(
        each["pages"] for device in server.get("/api/devices")["devices"] for each in device["guests"]
    )


def wait_for(what, patience=20):
    until = time.monotonic() + patience
    while not what():
        assert time.monotonic() < until, "in vain"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def alone(serve):
    """What the requests are answered where nothing is woven."""
    with serve(config(weave=False)) as server:
        answers = burst(server)
        assert not decided(server, "lend")
        return answers


def test_answers_are_the_same_to_the_bit(serve, alone):
    with serve(config()) as server:
        assert burst(server) == alone
        assert decided(server, "lend"), "nothing was lent"
