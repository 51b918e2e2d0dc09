"""Engines that misbehave: what a client sees of it, and that the engine beside it serves on."""

import contextlib
import json
import os
import pathlib
import signal
import threading
import time

import engines
import pytest
import server as heddle

GPU = "{name: gpu, kind: external, memory: 1GiB}"


def config(models, extra=""):
    """Engines on a device that holds one of those that do not say what they need. {id: (command, more keys)}"""
    rows = "".join(
        f"  {name}: {{cmd: {json.dumps(command)}, resume_timeout: 3s, unloadTimeout: 1, drain: 100ms{more}}}\n"
        for name, (command, more) in models.items()
    )
    return f"listen: 127.0.0.1:0\nstartPort: {engines.free_port(len(models))}\ndevices: [{GPU}]\nmodels:\n{rows}{extra}"


def pair(options="", more="", name="bad"):
    """One that misbehaves, and one that does not."""
    return config({name: (engines.scripted(name, options), more), "good": (engines.scripted("good"), "")})


def ask(server, model, **options):
    """(status, text of the answer or the error)."""
    body = {"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": 5, **options}
    status, _, answer = server.call("/v1/chat/completions", body, timeout=60)
    if status == 200:
        return status, answer["choices"][0]["message"]["content"]
    return status, answer["error"]["message"]


def assert_answers(server, model):
    status, text = ask(server, model)
    assert status == 200 and text.startswith(model + " heard "), (status, text, server.log())


def alive(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_that_starts_slowly_is_waited_for():
    with heddle.Server(pair("--open-after 0.5 --healthy-after 2")) as server:
        assert_answers(server, "bad")
        assert_answers(server, "good")


def test_one_that_never_answers_healthily_fails_its_requests_and_no_others():
    with heddle.Server(pair("--never-healthy", ", start_timeout: 2")) as server:
        status, text = ask(server, "bad")
        assert status >= 500 and "bad" in text, text
        assert_answers(server, "good")


def test_one_that_dies_while_it_starts_says_why():
    with heddle.Server(pair("--never-healthy --die-after 0.3")) as server:
        status, text = ask(server, "bad")
        assert status >= 500 and "exit status 3" in text, text
        assert_answers(server, "good")


@pytest.mark.parametrize("options", ["--fail-sleep", "--no-sleep", "--hang-sleep"])
def test_one_that_cannot_sleep_is_ended_instead(options):
    more = ", engine: vllm, suspend: [sleep]"
    with heddle.Server(pair(options, more)) as server:
        assert_answers(server, "bad")
        assert_answers(server, "good")
        assert_answers(server, "bad")


@pytest.mark.parametrize("options", ["--fail-wake", "--hang-wake", "--garbage-after-wake"])
def test_one_that_does_not_come_back_rightly_is_started_anew(options):
    more = ", engine: vllm, suspend: [sleep]"
    with heddle.Server(pair(options, more)) as server:
        for _ in range(2):
            assert_answers(server, "bad")
            assert_answers(server, "good")


def test_one_that_ignores_sigterm_is_killed_with_its_family(tmp_path):
    pids = tmp_path / "pids"
    with heddle.Server(pair(f"--sigterm ignore --child --stray --pid-file {pids}")) as server:
        assert_answers(server, "bad")
        family = [int(line) for line in pids.read_text().split()]
        assert len(family) == 3 and all(map(alive, family))
        assert_answers(server, "good")
        wait_until(lambda: not any(map(alive, family)))


def test_one_that_floods_its_output_costs_the_server_nothing():
    with heddle.Server(pair("--flood")) as server:
        assert_answers(server, "bad")
        time.sleep(1)
        assert heddle.proportional_bytes(server.process.pid) < 200 << 20
        assert len(server.log()) < 4 << 20
        assert_answers(server, "good")


@pytest.mark.parametrize("broken", ["cut", "no-done"])
def test_one_whose_stream_breaks_does_not_end_as_if_it_were_whole(broken):
    with heddle.Server(pair(f"--broken-sse {broken}")) as server:
        body = {"model": "bad", "messages": [{"role": "user", "content": "x"}], "max_tokens": 8, "stream": True}
        with contextlib.suppress(OSError):  # That the connection is cut is seen as well.
            status, _, text = server.call("/v1/chat/completions", body)
            assert status == 200 and ("error" in text or "[DONE]" not in text), text
        assert_answers(server, "good")


def test_one_that_dies_under_its_requests_is_started_again(tmp_path):
    pids = tmp_path / "pids"
    command = engines.scripted("slow", f"--first-token-ms 3000 --pid-file {pids}")
    with heddle.Server(config({"slow": (command, ", probe: false")})) as server:
        first = threading.Thread(target=ask, args=(server, "slow"))
        first.start()
        wait_until(pids.exists)
        time.sleep(1.5)  # Into the three seconds that its answer takes; what is asserted holds at any time.
        for pid in map(int, pids.read_text().split()):
            os.kill(pid, signal.SIGKILL)
        first.join(60)
        assert not first.is_alive()
        assert_answers(server, "slow")


def test_kill_of_the_server_leaves_no_engine_behind_after_the_next_start(tmp_path):
    pids = tmp_path / "pids"
    text = pair(f"--sigterm ignore --child --pid-file {pids}") + f"dataDir: {tmp_path / 'data'}\n"
    server = heddle.Server(text)
    assert_answers(server, "bad")
    family = [int(line) for line in pids.read_text().split()]
    server.process.kill()
    server.process.wait()
    with heddle.Server(text) as again:
        wait_until(lambda: not any(map(alive, family)))
        assert_answers(again, "bad")


def test_a_server_that_ends_takes_its_engines_with_it(tmp_path):
    pids = tmp_path / "pids"
    with heddle.Server(pair(f"--child --pid-file {pids}")) as server:
        assert_answers(server, "bad")
        family = [int(line) for line in pids.read_text().split()]
    wait_until(lambda: not any(map(alive, family)))
