"""A model sharded over two GPUs, which are the emulated driver's: its ranks exchange over their links, or by the host."""

import os
import signal

import pytest
import server as heddle
from test_failures import stream
from test_gpu import machine

LINKED = "ranks exchange over the GPUs' links"
BY_HOST = "ranks exchange through the host"


def config(dtype="float32"):
    """adder over both devices, beside a model that needs one."""
    rows = "".join("  - {kind: cuda, memory: 8MiB, page: 64KiB}\n" for _ in range(2))
    models = [
        f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: {dtype}, tensor_parallel: 2, min_residence: 0s}}\n",
        f"  morse: {{path: {heddle.MODELS / 'morse'}, min_residence: 0s}}\n",
    ]
    return heddle.config(models=models, devices=rows)


def check(server, count):
    for prompt, answer in heddle.eval_set("adder", count):
        assert server.chat("adder", prompt) == answer


@pytest.fixture(scope="module")
def linked():
    with heddle.Server(config(), env=machine(devices=2)) as running:
        yield running


def test_ranks_exchange_over_the_links_of_their_gpus(linked):
    check(linked, 4)
    shards = [device["shard"] for device in linked.call("/api/devices")[2]["devices"]]
    assert shards == [{"model": "adder", "rank": rank, "ranks": 2} for rank in range(2)]
    assert linked.log().count(LINKED) == 2
    assert BY_HOST not in linked.log()


def test_it_takes_turns_with_a_model_on_one_of_the_gpus(linked):
    for turn in range(3):
        for model in ("morse", "adder"):
            prompt, answer = heddle.eval_set(model, 3)[turn]
            assert linked.chat(model, prompt) == answer


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stream_goes_on_whichever_worker_is_killed(linked, rank):
    """Whose kernel waited for the rank that died waits no longer, and the new group exchanges likewise."""
    prompt, answer = max(heddle.eval_set("adder", 50), key=lambda pair: len(pair[1]))
    before = linked.log().count(LINKED)

    def kill_at_second(tokens):
        if tokens == 2:
            os.kill(linked.workers()[rank], signal.SIGKILL)

    assert stream(linked, "adder", prompt, kill_at_second)[0] == answer
    assert linked.log().count(LINKED) == before + 2


@pytest.mark.parametrize("peers", [0, 2])
def test_gpus_without_such_a_link_exchange_through_the_host(peers):
    """Where no GPU reaches another, or over PCIe only."""
    with heddle.Server(config(), env=machine(devices=2, peers=peers)) as server:
        check(server, 3)
        assert "has no link to GPU" in server.log()
        assert server.log().count(BY_HOST) == 2
        assert LINKED not in server.log()


def test_both_ways_give_the_same_probabilities():
    """In bfloat16, which rounds: all-reduce gives the same bits by either way."""
    told = []
    for peers in (1, 0):
        with heddle.Server(config("bfloat16"), env=machine(devices=2, peers=peers)) as server:
            told.append(server.told_twice("adder", "12+34="))
    assert told[0] == told[1]
