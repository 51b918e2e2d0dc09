"""A model sharded over two devices answers as on one, takes turns with others, and outlives its workers."""

import os
import signal

import pytest
import server as heddle
from test_failures import stream

DEVICES = "".join(
    f"  - {{name: cpu{i}, kind: cpu, memory: 3MiB, page: 64KiB, pace: {{step: 5ms}}}}\n" for i in range(2)
)


@pytest.fixture(scope="module")
def sharded():
    """adder over both devices, beside two models that each need one."""
    models = [
        f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: float32, tensor_parallel: 2, min_residence: 0s}}\n",
        f"  morse: {{path: {heddle.MODELS / 'morse'}, min_residence: 0s}}\n",
        f"  sorter: {{path: {heddle.MODELS / 'sorter'}, min_residence: 0s}}\n",
    ]
    with heddle.Server(heddle.config(models=models, devices=DEVICES)) as running:
        yield running


def devices(server):
    return server.call("/api/devices")[2]["devices"]


def test_it_answers_right_and_shows_where_it_is(sharded):
    for prompt, answer in heddle.eval_set("adder", 10):
        assert sharded.chat("adder", prompt) == answer
    running = {row["model"]: row for row in sharded.call("/running")[2]["running"]}
    assert running["adder"]["device"] == "cpu0+cpu1"
    assert [device["shard"] for device in devices(sharded)] == [
        {"model": "adder", "rank": rank, "ranks": 2} for rank in range(2)
    ]


def test_it_tells_how_likely_a_text_is(sharded):
    generated, scored = sharded.told_twice("adder", "12+34=")
    assert scored == pytest.approx(generated, abs=1e-3)


def test_it_takes_turns_with_models_on_its_devices(sharded):
    for turn in range(5):
        for model in ("adder", "morse", "sorter"):
            prompt, answer = heddle.eval_set(model, 5)[turn]
            assert sharded.chat(model, prompt) == answer


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stream_goes_on_whichever_worker_is_killed(sharded, rank):
    prompt, answer = max(heddle.eval_set("adder", 50), key=lambda pair: len(pair[1]))
    before = [device["restarts"] for device in devices(sharded)]

    def kill_at_second(tokens):
        if tokens == 2:
            os.kill(sharded.workers()[rank], signal.SIGKILL)

    assert stream(sharded, "adder", prompt, kill_at_second)[0] == answer
    # Its answer needed both devices anew, so by now both have restarted.
    assert [device["restarts"] for device in devices(sharded)] == [count + 1 for count in before]


def test_no_block_of_devices_is_an_error_before_the_start(sharded, tmp_path):
    uneven = DEVICES.replace("3MiB", "4MiB", 1)
    path = tmp_path / "heddle.yaml"
    rows = [f"  adder: {{path: {heddle.MODELS / 'adder'}, tensor_parallel: 2}}\n"]
    path.write_text(heddle.config(models=rows, devices=uneven))
    checked = heddle.subprocess.run(
        [heddle.BINARY, "config", "check", path], capture_output=True, text=True, check=False
    )
    assert checked.returncode != 0
    assert "tensor_parallel: 2 devices that follow each other" in checked.stdout + checked.stderr
