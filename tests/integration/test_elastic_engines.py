"""Engines whose KV grows and shrinks on one device (docs/contracts/elastic_engines.md), with the engine that does as it is told."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request

import engines
import pytest
import server as heddle

DEVICE_MIB = 640
FIXED_MIB = 64
LEAST_MIB = 16
REQUEST_MIB = 16
HALF_MIB = DEVICE_MIB // 2 - FIXED_MIB
STEPS = 800
TOKENS = 60
CLIENTS = 48
SHARED = pathlib.Path("/dev/shm")


def config(options, elastic=True, port=None, device=f"{{name: gpu, kind: external, memory: {DEVICE_MIB}MiB}}", extra=""):
    """{name: flags of its engine}; elastic, or of a fixed share of the device. Pinned: an idle one is not ended for a busy one."""
    port = port or engines.free_port(len(options))
    rows = ""
    for name, flags in options.items():
        kv = f"--kv-request-mib {REQUEST_MIB} --kv-mib {DEVICE_MIB if elastic else HALF_MIB} {flags}"
        memory = FIXED_MIB if elastic else DEVICE_MIB // 2
        keys = f", kv: elastic, kv_least: {LEAST_MIB}MiB" if elastic else ""
        command = json.dumps(engines.scripted(name, kv))
        rows += f"  {name}: {{cmd: {command}, memory: {memory}MiB, unloadTimeout: 1, pin: true{keys}}}\n"
    return f"listen: 127.0.0.1:0\nstartPort: {port}\ndevices: [{device}]\nmodels:\n{rows}{extra}", port


def ask(server, model, tokens=5):
    """(status, text of the answer or the error)."""
    body = {"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": tokens}
    status, _, answer = server.call("/v1/chat/completions", body, timeout=120)
    return (status, answer["choices"][0]["message"]["content"]) if status == 200 else (status, answer["error"]["message"])


def assert_answers(server, model, tokens=5):
    status, text = ask(server, model, tokens)
    assert status == 200 and text.startswith(model + " heard "), (status, text, server.log())
    assert len(text.split()) == tokens


def kv_of(port, steps=0):
    """What the engine itself says, and what it made since it was last asked."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/kv?steps={steps}", timeout=30) as answer:
        return json.loads(answer.read())


def status_of(server, model):
    return next(each for each in server.call("/api/engines")[2]["engines"] if each["model"] == model)


def running(server, model):
    return status_of(server, model)["state"] == "running"


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def peak(server, model, port):
    """Clients ask as fast as they get answers, until the engine has worked for so many steps: (tokens in these, wrong answers)."""
    kv_of(port)
    enough = threading.Event()
    wrong = []

    def client():
        while not enough.is_set():
            status, text = ask(server, model, TOKENS)
            if status != 200 or len(text.split()) != TOKENS or not text.startswith(model + " heard "):
                wrong.append((status, text))
                return

    made, steps = 0, 0
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        for _ in range(CLIENTS):
            clients.submit(client)
        while steps < STEPS and not wrong:
            time.sleep(0.05)
            said = kv_of(port, STEPS - steps)
            made, steps = made + said["tokens"], min(STEPS, steps + said["steps"])
        enough.set()
    return made, wrong


def peaks_in_turn(elastic):
    """Tokens of two engines that peak one after the other, twice, in so many steps each."""
    text, port = config({"early": "", "late": ""}, elastic)
    made = []
    with heddle.Server(text) as server:
        assert_answers(server, "early")
        assert_answers(server, "late")
        for _ in range(2):
            for model, at in (("early", port), ("late", port + 1)):
                tokens, wrong = peak(server, model, at)
                assert not wrong, (wrong[:3], server.log()[-4000:])
                made.append(tokens)
        if elastic:
            explained = subprocess.check_output([heddle.BINARY, "explain", "--url", server.url, "early"], text=True)
            assert "its KV may have" in explained, explained
            assert status_of(server, "early")["starts"] == 1
            metrics = server.metrics()
            assert any(key.startswith("heddle_engine_bytes{") and 'where="kv_limit"' in key for key in metrics), metrics
    return made


def test_two_that_peak_in_turn_make_half_as_many_tokens_again_as_with_halves():
    halves = peaks_in_turn(elastic=False)
    elastic = peaks_in_turn(elastic=True)
    print(f"tokens in {STEPS} steps of each peak: halves {halves}, elastic {elastic}")
    assert sum(elastic) >= 1.5 * sum(halves), (halves, elastic)


def test_two_that_peak_together_both_get_on():
    text, port = config({"one": "", "two": ""})
    with heddle.Server(text) as server:
        with concurrent.futures.ThreadPoolExecutor(2 * CLIENTS) as clients:
            asked = [clients.submit(assert_answers, server, model, 40) for model in ("one", "two") * (2 * CLIENTS)]
            for answered in asked:
                answered.result(120)
        said = [kv_of(port), kv_of(port + 1)]
        assert all(each["limit"] <= DEVICE_MIB << 20 for each in said)
        wait_until(lambda: sum(status_of(server, name)["kv_limit_bytes"] for name in ("one", "two")) <= 2 * HALF_MIB << 20)


def test_an_engine_comes_although_another_has_all_the_memory():
    text, port = config({"first": "", "second": ""})
    with heddle.Server(text) as server:
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            asked = [clients.submit(assert_answers, server, "first", 400) for _ in range(CLIENTS)]
            wait_until(lambda: running(server, "first"))
            wait_until(lambda: kv_of(port)["used"] > (DEVICE_MIB - 2 * FIXED_MIB - LEAST_MIB) << 20)
            assert_answers(server, "second")
            for answered in asked:
                answered.result(120)
        assert status_of(server, "first")["starts"] == 1


def test_beside_a_model_of_our_own_kv_is_borrowed_and_comes_back():
    device = "{name: cpu0, kind: cpu, memory: 512MiB, page: 64KiB}"
    rows = f"  adder: {{path: {heddle.MODELS / 'adder'}}}\n"
    text, port = config({"engine": ""}, device=device, extra=rows)
    with heddle.Server(text) as server:
        assert_answers(server, "engine")
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert server.chat("adder", prompt) == answer
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            asked = [clients.submit(assert_answers, server, "engine", 200) for _ in range(CLIENTS)]
            wait_until(lambda: running(server, "engine") and kv_of(port)["used"] > 4 * REQUEST_MIB << 20)
            assert server.chat("adder", prompt) == answer
            for answered in asked:
                answered.result(120)
        wait_until(lambda: status_of(server, "engine")["kv_limit_bytes"] <= 2 * LEAST_MIB << 20)
        assert server.chat("adder", prompt) == answer


# ---- Engines that misbehave ----


def trouble(server, model):
    return status_of(server, model)["trouble"] or ""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--kv-missing", "kv: elastic takes kvcached in the engine's environment"),
        ("--kv-other-version", "another version wrote it"),
    ],
)
def test_one_without_a_segment_that_is_understood_fails_its_requests_and_no_others(flags, said):
    text, _ = config({"bad": flags, "good": ""})
    with heddle.Server(text) as server:
        status, error = ask(server, "bad")
        assert status >= 500 and said in error, (status, error)
        assert_answers(server, "good")


def test_one_that_forgets_to_unmap_is_found_out_and_the_other_serves_on():
    text, port = config({"bad": "--kv-forget", "good": ""})
    with heddle.Server(text) as server:
        assert_answers(server, "good")
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            for answered in [clients.submit(assert_answers, server, "bad", 100) for _ in range(CLIENTS // 3)]:
                answered.result(120)
        found = threading.Event()

        def press():  # It wants what the other has mapped.
            while not found.is_set():
                assert_answers(server, "good", 40)

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            asked = [clients.submit(press) for _ in range(CLIENTS)]
            try:
                wait_until(lambda: "does not unmap" in trouble(server, "bad"))
            finally:
                found.set()
            for answered in asked:
                answered.result(120)
        status = status_of(server, "bad")
        assert status["kv_limit_bytes"] >= status["kv_used_bytes"] > 4 * LEAST_MIB << 20, "what it has is nobody else's"
        assert_answers(server, "bad")
        assert status_of(server, "bad")["starts"] == 1


def test_one_that_unmaps_late_delays_the_other_and_no_more():
    text, _ = config({"bad": "--kv-late 1", "good": ""})
    with heddle.Server(text) as server:
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            asked = [clients.submit(assert_answers, server, model, 20) for model in ("bad", "good") * CLIENTS]
            for answered in asked:
                answered.result(120)
        wait_until(lambda: status_of(server, "bad")["kv_limit_bytes"] <= 3 * LEAST_MIB << 20)


def test_one_that_says_it_has_more_than_its_limit_takes_nothing_from_the_other():
    text, _ = config({"bad": "--kv-over-mib 100 --kv-deaf", "good": ""})
    with heddle.Server(text) as server:
        assert_answers(server, "good")
        assert_answers(server, "bad")
        wait_until(lambda: "where it was allowed" in trouble(server, "bad"))
        assert_answers(server, "good")
        assert status_of(server, "good")["starts"] == 1


def test_one_whose_segment_goes_keeps_what_it_has_until_it_is_back(tmp_path):
    lost = tmp_path / "lost"
    text, _ = config({"bad": f"--kv-lose-while {lost}", "good": ""})
    with heddle.Server(text) as server:
        assert_answers(server, "bad")
        lost.touch()
        wait_until(lambda: "is missing" in trouble(server, "bad"))
        assert_answers(server, "bad")
        assert_answers(server, "good")
        lost.unlink()
        wait_until(lambda: trouble(server, "bad") == "")
        assert_answers(server, "bad")


def segments():
    return {path.name for path in SHARED.glob("heddle_kv_*")}


def test_what_a_killed_server_left_is_removed_at_the_next_start(tmp_path):
    before = segments()
    text, _ = config({"engine": ""})
    text += f"dataDir: {tmp_path}\n"
    server = heddle.Server(text)
    assert_answers(server, "engine")
    left = segments() - before
    assert len(left) == 1 and f"_{server.process.pid}_" in next(iter(left))
    server.process.kill()
    server.process.wait()
    with heddle.Server(text) as again:
        assert not left & segments(), again.log()
        assert_answers(again, "engine")
    assert segments() <= before


def test_config_check_says_what_elastic_takes(tmp_path):
    path = tmp_path / "heddle.yaml"
    for model, said in {
        "{cmd: python3, kv: elastic}": "memory: is missing",
        "{cmd: python3, memory: 1MiB, kv_least: 1GiB}": "kv_least: is for kv: elastic",
        "{engine: ollama, path: x, memory: 1MiB, kv: elastic}": "which is for vllm and sglang",
        "{proxy: 'http://127.0.0.1:9', memory: 1MiB, kv: elastic}": "takes an engine that is run here",
        "{cmd: python3, memory: 9GiB, kv: elastic, kv_least: 2GiB}": "and kv_least 2.00 GiB can never fit",
    }.items():
        path.write_text(f"devices: [{{name: gpu, kind: external, memory: 10GiB}}]\nmodels: {{a: {model}}}\n")
        ran = subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True, timeout=60)
        assert ran.returncode != 0 and said in ran.stdout + ran.stderr, ran.stdout + ran.stderr


def test_kvcached_itself_reads_and_writes_the_same_segment(tmp_path):
    """With the package's own Python module, where HEDDLE_TEST_KVCACHED names a folder that has it (torch may be missing)."""
    folder = os.environ.get("HEDDLE_TEST_KVCACHED")
    if not folder:
        pytest.skip("HEDDLE_TEST_KVCACHED names no folder with the package kvcached")
    text, _ = config({"engine": ""})
    with heddle.Server(text) as server:
        assert_answers(server, "engine")
        (name,) = [each for each in segments() if f"_{server.process.pid}_" in each]
        program = (
            "import sys, types; sys.modules['torch'] = types.ModuleType('torch');"
            "from kvcached.cli.utils import get_kv_cache_limit;"
            f"info = get_kv_cache_limit('{name}'); print(info.total_size, info.used_size, info.prealloc_size)"
        )
        with contextlib.suppress(KeyError):
            os.environ.pop("KVCACHED_IPC_NAME")
        said = subprocess.check_output(
            [os.environ.get("HEDDLE_TEST_KVCACHED_PYTHON", sys.executable), "-c", program], text=True, env={**os.environ, "PYTHONPATH": folder}
        )
        total, used, prealloc = map(int, said.split())
        assert LEAST_MIB << 20 <= total <= DEVICE_MIB << 20
        assert 0 <= used + prealloc <= total
