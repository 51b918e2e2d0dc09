"""A model in stages on two devices answers as on one, takes turns with others, and outlives its workers."""

import os
import signal

import pytest
import server as heddle
from test_failures import stream

DEVICES = "".join(
    f"  - {{name: cpu{i}, kind: cpu, memory: 3MiB, page: 64KiB, pace: {{step: 5ms}}}}\n" for i in range(2)
)


@pytest.fixture(scope="module")
def piped():
    """adder over both devices, beside two models that each need one."""
    models = [
        f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: float32, pipeline_parallel: 2, min_residence: 0s}}\n",
        f"  morse: {{path: {heddle.MODELS / 'morse'}, min_residence: 0s}}\n",
        f"  sorter: {{path: {heddle.MODELS / 'sorter'}, min_residence: 0s}}\n",
        f"  piped: {{path: {heddle.MODELS / 'reverser'}, pipeline_parallel: 2, min_residence: 0s}}\n",
        f"  whole: {{path: {heddle.MODELS / 'reverser'}, min_residence: 0s}}\n",
    ]
    with heddle.Server(heddle.config(models=models, devices=DEVICES)) as running:
        yield running


def devices(server):
    return server.call("/api/devices")[2]["devices"]


def test_it_answers_right_and_shows_its_stages(piped):
    for prompt, answer in heddle.eval_set("adder", 10):
        assert piped.chat("adder", prompt) == answer
    running = {row["model"]: row for row in piped.call("/running")[2]["running"]}
    assert running["adder"]["device"] == "cpu0+cpu1"
    assert [device["stage"] for device in devices(piped)] == [
        {"model": "adder", "stage": stage, "stages": 2} for stage in range(2)
    ]
    assert all("shard" not in device for device in devices(piped))
    follower = devices(piped)[1]
    assert follower["pages"]["shard_pipe"]["held"] > 0
    assert follower["pages"]["kv_own"]["held"] == 0
    shown = heddle.subprocess.run(
        [heddle.BINARY, "ps"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HEDDLE_HOST": piped.url},
    ).stdout
    assert "cpu0: stage 1 of 2 of adder" in shown and "cpu1: stage 2 of 2 of adder" in shown


def test_it_tells_how_likely_a_text_is(piped):
    generated, scored = piped.told_twice("adder", "12+34=")
    assert scored == pytest.approx(generated, abs=1e-3)


def test_it_takes_turns_with_models_on_its_devices(piped):
    for turn in range(4):
        for model in ("adder", "morse", "sorter"):
            prompt, answer = heddle.eval_set(model, 4)[turn]
            assert piped.chat(model, prompt) == answer
    free = [device["pages"]["shard_pipe"]["held"] for device in devices(piped)]
    assert free == [0, 0], "nothing is reserved for a pipeline that is no more"


def test_answers_are_those_of_one_device_to_the_bit(piped):
    """Sampled, with penalties, log probabilities, grammars and cached prefixes."""
    prompts = [prompt for prompt, _ in heddle.eval_set("reverser", 3)]
    options = [
        {"temperature": 0.9, "seed": 7, "top_p": 0.95, "logprobs": True, "top_logprobs": 3, "n": 2},
        {"temperature": 0.7, "seed": 8, "frequency_penalty": 0.5, "presence_penalty": 0.3, "max_tokens": 20},
        {"temperature": 1.0, "seed": 9, "structured_outputs": {"regex": "[a-z]{3,9}( [a-z]{2,9}){1,3}"}},
    ]

    def answers(model):
        found = []
        for prompt in prompts:
            for choice in options:
                body = {"model": model, "messages": [{"role": "user", "content": prompt}], **choice}
                status, _, answer = piped.call("/v1/chat/completions", body)
                assert status == 200, answer
                found.append(
                    [(c["message"]["content"], c["logprobs"], c["finish_reason"]) for c in answer["choices"]]
                )
                cached[model] = cached.get(model, 0) + answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    cached = {}
    assert answers("piped") == answers("whole")
    assert cached["piped"] > 0


@pytest.mark.parametrize("stage", [0, 1])
def test_a_stream_goes_on_whichever_worker_is_killed(piped, stage):
    prompt, answer = max(heddle.eval_set("adder", 50), key=lambda pair: len(pair[1]))
    before = [device["restarts"] for device in devices(piped)]

    def kill_at_second(tokens):
        if tokens == 2:
            os.kill(piped.workers()[stage], signal.SIGKILL)

    assert stream(piped, "adder", prompt, kill_at_second)[0] == answer
    assert [device["restarts"] for device in devices(piped)] == [count + 1 for count in before]


def test_more_stages_than_layers_is_an_error_that_says_so(tmp_path):
    path = tmp_path / "heddle.yaml"
    rows = [f"  adder: {{path: {heddle.MODELS / 'adder'}, pipeline_parallel: 4}}\n"]
    four = "".join(f"  - {{name: cpu{i}, kind: cpu, memory: 3MiB, page: 64KiB}}\n" for i in range(4))
    path.write_text(heddle.config(models=rows, devices=four))
    checked = heddle.subprocess.run(
        [heddle.BINARY, "config", "check", path], capture_output=True, text=True, check=False
    )
    assert checked.returncode != 0
    assert "cut a model of 3 layers into 4 stages" in checked.stdout + checked.stderr
