"""Experts that nobody asks for stay in host memory: what a server with `experts: {resident: ...}` does and shows."""

import concurrent.futures
import os
import random
import signal
import subprocess
import time

import pytest
import server as heddle
from goldens import PROMPT, golden, with_words

EXPERTS = 16  # Eight in each of two layers, of which a token takes three.
EXPERT_BYTES = 3 * 16 * 32 * 4
PAGE = 4096


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    return with_words("qwen3-moe", tmp_path_factory.mktemp("experts") / "mixture")


def row(name, path, resident):
    return f"  {name}: {{path: {path}, dtype: float32, experts: {{resident: {resident}}}}}\n"


def say(server, model, prompt, tokens):
    """What it says greedily, with log probabilities to the last bit."""
    asked = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "logprobs": 1}
    status, _, answer = server.call("/v1/completions", asked)
    assert status == 200, answer
    choice = answer["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def device(server):
    return server.call("/api/devices")[2]["devices"][0]


def experts_of(server, model, is_told=lambda told: True):
    """What is told of a model's experts; workers say it by and by, so once it is as it should be."""
    deadline = time.monotonic() + 30
    while True:
        told = next((each for each in device(server)["experts"] if each["model"] == model), None)
        if told is not None and is_told(told):
            return told
        assert time.monotonic() < deadline, told
        time.sleep(0.02)


def test_a_part_of_the_experts_is_resident_and_answers_are_the_same_to_the_bit(mixture):
    shares = {"whole": 1, "half": 0.5, "one": 0.01}
    rng = random.Random(20261128)
    prompts = [[rng.randrange(3, 67) for _ in range(rng.randrange(1, 40))] for _ in range(8)]
    rows = [row(name, mixture, resident) for name, resident in shares.items()]
    with heddle.Server(heddle.config(models=rows, page="4KiB")) as server:
        ids, greedy = golden("qwen3-moe")
        for name in shares:
            text = say(server, name, ids[:PROMPT], len(greedy))[0]
            assert [int(word[1:]) for word in text.split()] == greedy, name
        with concurrent.futures.ThreadPoolExecutor(6) as threads:  # Batches as they come.
            said = {name: list(threads.map(lambda p: say(server, name, p, 12), prompts)) for name in shares}
        assert said["whole"] == said["half"] == said["one"]

        half = experts_of(server, "half", lambda told: told["resident"] == 8 and told["hits"] > 0)
        one = experts_of(server, "one", lambda told: told["resident"] == 1 and told["misses"] > half["misses"])
        shown = device(server)
        pages = {each["model"]: each["weights_pages"] for each in shown["models"]}
        assert pages["whole"] - pages["half"] == EXPERTS // 2 * EXPERT_BYTES // PAGE
        assert pages["half"] - pages["one"] == (EXPERTS // 2 - 1) * EXPERT_BYTES // PAGE
        assert sorted(each["model"] for each in shown["experts"]) == ["half", "one"]
        metrics = server.metrics()
        for name, told in (("half", half), ("one", one)):
            assert told["experts"] == EXPERTS
            assert told["fetched_bytes"] == told["misses"] * EXPERT_BYTES
            labels = f'{{device="cpu0",model_name="{name}"}}'
            assert metrics[f"heddle_experts_resident{labels}"] == told["resident"]
            for count in ("hits", "misses", "fetched_bytes"):
                assert metrics[f"heddle_expert_{count}_total{labels}"] >= told[count]
        ps = subprocess.run([heddle.BINARY, "ps", "--url", server.url], capture_output=True, text=True, timeout=60)
        assert "cpu0: 8 of 16 experts of half are there" in ps.stdout, ps.stdout + ps.stderr


def test_it_comes_and_goes_takes_turns_and_outlives_its_worker(mixture):
    sums = heddle.eval_set("adder", 3)
    rows = [row("part", mixture, 0.25), f"  adder: {{path: {heddle.MODELS / 'adder'}}}\n"]
    with heddle.Server(heddle.config(models=rows, memory="2100KiB", page="4KiB")) as server:
        first = say(server, "part", [5, 6, 7], 12)
        for question, answer in sums:
            assert server.chat("adder", question) == answer
            assert [each["model"] for each in device(server)["models"]] == ["adder"], "there is room for one"
            before = experts_of(server, "part", lambda told: told["resident"] == 0)["misses"]
            assert say(server, "part", [5, 6, 7], 12) == first
            experts_of(server, "part", lambda told: told["misses"] > before)  # It began without experts.
        os.kill(server.workers()[0], signal.SIGKILL)
        assert say(server, "part", [5, 6, 7], 12) == first
        assert server.chat("adder", sums[0][0]) == sums[0][1], "the image is not held by a worker that died"


@pytest.mark.parametrize(
    "more, said",
    [
        ("experts: {resident: 0.5}", "it has none"),
        ("experts: {resident: 1.5}", "experts.resident"),
        ("experts: {resident: 0.5}, tensor_parallel: 2", "experts"),
        ("experts: {resident: 0.5}, pipeline_parallel: 2", "experts"),
    ],
)
def test_what_cannot_be_is_refused_with_words(tmp_path, mixture, more, said):
    path = tmp_path / "heddle.yaml"
    model = heddle.MODELS / "adder" if said == "it has none" else mixture
    path.write_text(heddle.config(models=[f"  wrong: {{path: {model}, {more}}}\n"]))
    done = subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_images_that_stay_in_host_memory_have_room_there(tmp_path, mixture):
    path = tmp_path / "heddle.yaml"
    rows = [row("a", mixture, 0.5), row("b", mixture, 0.5)]
    path.write_text(heddle.config(models=rows, page="4KiB").replace("memory: 64MiB", "memory: 300KiB", 1))
    done = subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "of models whose experts stay there" in done.stdout + done.stderr
