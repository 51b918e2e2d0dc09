"""A model whose stages are on different hosts answers as on one device, and outlives every agent and worker of it."""

import os
import signal
import subprocess

import cluster
import pytest
import server as heddle
from test_cluster import LONG, Stream, ready, wait_until

MODELS = [
    f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: float32, pipeline_parallel: 2, min_residence: 0s}}\n",
    f"  sorter: {{path: {heddle.MODELS / 'sorter'}, min_residence: 0s}}\n",
]


@pytest.fixture(scope="module")
def expected():
    """What the model answers on one device."""
    rows = [f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: float32}}\n"]
    with heddle.Server(heddle.config(memory="8MiB", models=rows)) as alone:
        body = {"model": "adder", "prompt": "1 2 3", "max_tokens": LONG, "temperature": 0, "ignore_eos": True}
        return alone.call("/v1/completions", body)[2]["choices"][0]["text"]


@pytest.fixture(scope="module")
def running():
    with cluster.Cluster(hosts=3, models=MODELS, device_extra=", pace: {step: 10ms}") as started:
        ready(started.gateways[0], 2)
        yield started


def stages(running):
    """By stage, the device that has it: ["h1/cpu0", "h2/cpu0"]."""
    found = [(d["stage"]["stage"], d["name"]) for d in running.gateways[0].call("/api/devices")[2]["devices"] if d.get("stage")]
    return [name for _, name in sorted(found)]


def host(running, device):
    return next(node for node in running.hosts if node.name == device.partition("/")[0])


def all_up(running):
    wait_until(lambda: all(d["up"] for d in running.gateways[0].call("/api/devices")[2]["devices"]))
    assert len(running.gateways[0].call("/api/devices")[2]["devices"]) == 3


def worker(node):
    (one,) = [pid for pid in heddle.children(node.process.pid) if "worker" in heddle.command_line(pid)]
    return one


def test_stages_are_on_two_hosts_and_shown_so(running):
    gateway = running.gateways[0]
    for prompt, answer in heddle.eval_set("adder", 10):
        assert gateway.chat("adder", prompt) == answer
    wait_until(lambda: len(stages(running)) == 2)
    devices = stages(running)
    assert len({device.partition("/")[0] for device in devices}) == 2
    rows = {row["model"]: row for row in gateway.call("/running")[2]["running"]}
    assert rows["adder"]["device"] == "+".join(devices)
    shown = subprocess.run(
        [heddle.BINARY, "ps"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HEDDLE_HOST": gateway.url},
    ).stdout
    for number, device in enumerate(devices, 1):
        assert f"{device}: stage {number} of 2 of adder" in shown


def test_it_takes_turns_with_a_model_that_needs_its_devices(running):
    gateway = running.gateways[0]
    for turn in range(3):
        for model in ("adder", "sorter"):
            prompt, answer = heddle.eval_set(model, 3)[turn]
            assert gateway.chat(model, prompt) == answer
    assert gateway.call("/models/unload", {"model": "adder"})[0] == 200
    wait_until(lambda: not stages(running))
    for device in gateway.call("/api/devices")[2]["devices"]:
        assert device["pages"]["shard_pipe"]["held"] == 0, "nothing is reserved for a pipeline that is no more"
    assert gateway.chat("adder", heddle.eval_set("adder", 1)[0][0]) == heddle.eval_set("adder", 1)[0][1]


@pytest.mark.parametrize("dies", ["worker", "agent"])
@pytest.mark.parametrize("stage", [0, 1])
def test_streams_go_on_whichever_worker_or_agent_is_killed(running, expected, stage, dies):
    gateway = running.gateways[0]
    all_up(running)
    streams = [Stream(gateway, "adder", "1 2 3") for _ in range(3)]
    for stream in streams:
        stream.began()
    node = host(running, stages(running)[stage])
    if dies == "worker":
        os.kill(worker(node), signal.SIGKILL)
    else:
        node.kill()
    assert [stream.text() for stream in streams] == [expected] * 3
    if dies == "agent":
        node.restart()
    all_up(running)


def test_a_new_manager_takes_a_pipeline_up_as_it_is(running, expected):
    gateway, manager = running.gateways[0], running.managers[0]
    all_up(running)
    stream = Stream(gateway, "adder", "1 2 3").began()
    where = stages(running)
    formed = sum(node.log().count("group formed") for node in running.hosts)
    manager.kill()
    manager.restart()
    wait_until(lambda: stages(running) == where)
    prompt, answer = heddle.eval_set("adder", 1)[0]
    assert gateway.chat("adder", prompt) == answer
    assert stream.text() == expected
    assert sum(node.log().count("group formed") for node in running.hosts) == formed


def test_too_few_hosts_are_an_error_that_says_so():
    with cluster.Cluster(hosts=1, models=MODELS) as alone:
        gateway = alone.gateways[0]
        ready(gateway)
        prompt, right = heddle.eval_set("sorter", 1)[0]
        assert gateway.chat("sorter", prompt) == right
        body = {"model": "adder", "messages": [{"role": "user", "content": "1+1="}]}
        status, _, answer = gateway.call("/v1/chat/completions", body)
        assert status == 503, answer
        assert "it is in 2 parts" in answer["error"]["message"] and "1 devices" in answer["error"]["message"], answer
