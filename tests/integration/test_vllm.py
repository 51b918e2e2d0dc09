"""vLLM itself, where HEDDLE_TEST_VLLM names its program: a build for processors will do.

Its start takes a minute or more, so there is one pair of engines for all tests. They displace each other, so that one has
to be frozen for the other; vLLM's own sleep takes an accelerator and is not tested here.
"""

import os
import pathlib
import time

import engines
import openai
import pytest
import server as heddle

PROGRAM = os.environ.get("HEDDLE_TEST_VLLM")
START_SECONDS = 900
pytestmark = pytest.mark.skipif(not PROGRAM, reason="HEDDLE_TEST_VLLM names no vLLM: it was not tested as an engine")


def config(folder):
    rows = "".join(
        f"  vllm-{model}: {{engine: vllm, cmd: '{PROGRAM} serve {heddle.MODELS / model} --served-model-name vllm-{model}"
        f" --port ${{PORT}} --enforce-eager', env: [VLLM_CPU_KVCACHE_SPACE=1], memory: 3500MiB, suspend: [freeze],"
        f" start_timeout: {START_SECONDS}}}\n"
        for model in ("adder", "morse")
    )
    return (
        f"listen: 127.0.0.1:0\nstartPort: {engines.free_port(2)}\ndataDir: {folder}\n"
        "devices: [{name: machine, kind: external, memory: 8GiB}]\n"
        f"limits: {{load_timeout: {START_SECONDS}s, request_timeout: {2 * START_SECONDS}s}}\n"
        f"groups: {{one: {{swap: true, members: [vllm-adder, vllm-morse]}}}}\nmodels:\n{rows}"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def pair(folder):
    with heddle.Server(config(folder)) as server:
        yield server


def ask(server, model, prompt):
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
    status, _, answer = server.call("/v1/chat/completions", body, timeout=2 * START_SECONDS)
    assert status == 200, (answer, server.log())
    return answer["choices"][0]["message"]["content"]


def processes():
    """Ids of the processes that belong to an engine of a test, by what vLLM calls them."""
    found = set()
    for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            arguments = comm.with_name("cmdline").read_bytes()
            if comm.read_text().startswith("VLLM::") or b"vllm-adder" in arguments or b"vllm-morse" in arguments:
                found.add(int(comm.parent.name))
        except OSError:
            continue  # It has ended.
    return found


def test_two_take_turns_by_being_frozen_and_answer_as_our_own_engine_does(pair):
    for (question, answer), (letter, code) in zip(heddle.eval_set("adder", 3), heddle.eval_set("morse", 3), strict=True):
        assert ask(pair, "vllm-adder", question) == answer
        assert ask(pair, "vllm-morse", letter) == code
    for engine in pair.call("/api/engines")[2]["engines"]:
        costs = {cost["level"]: cost for cost in engine["costs"]}
        assert engine["starts"] == 1 and costs["freeze"]["times"] >= 2 and costs["freeze"]["failures"] == 0
    assert "cannot be probed" not in pair.log()


def test_streams_pass_with_their_usage(pair):
    question, answer = heddle.eval_set("adder", 1)[0]
    client = openai.OpenAI(base_url=pair.url + "/v1", api_key="unused", max_retries=0, timeout=2 * START_SECONDS)
    messages = [{"role": "user", "content": question}]
    options = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    parts = list(client.chat.completions.create(model="vllm-adder", messages=messages, **options))
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == answer
    assert parts[-1].usage.completion_tokens == len(parts) - 2  # The first has the role, the last the usage.


def test_its_own_paths_and_metrics_are_reached(pair):
    status, _, version = pair.call("/upstream/vllm-adder/version", timeout=START_SECONDS)
    assert status == 200 and version["version"]
    status, _, metrics = pair.call("/metrics?model=vllm-adder", timeout=START_SECONDS)
    assert status == 200 and "vllm:generation_tokens_total{" in metrics


def test_what_a_killed_server_leaves_is_ended_by_the_next(pair, folder):
    ours = processes()
    assert ours
    pair.process.kill()
    pair.process.wait()
    with heddle.Server(config(folder)):
        deadline = time.monotonic() + 60
        while ours & processes():
            assert time.monotonic() < deadline
            time.sleep(0.1)
