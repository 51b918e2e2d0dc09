"""Engines that misbehave: what a client sees of it, and that the engine beside it serves on."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
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


@pytest.mark.parametrize("options", ["--fail-reload", "--hang-reload", "--empty-reload", "--fail-reset"])
def test_one_that_sleeps_deeply_and_does_not_get_its_weights_back_is_started_anew(options):
    more = ", engine: vllm, suspend: [deep_sleep], start_timeout: 10"
    with heddle.Server(pair(options, more)) as server:
        for _ in range(2):
            assert_answers(server, "bad")
            assert_answers(server, "good")
        starts, costs = levels(server, "bad")
        assert starts == 2 and costs["deep_sleep"]["failures"] == 1


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
        with contextlib.suppress(OSError):  # That the connection is sharded is seen as well.
            status, _, text = server.call("/v1/chat/completions", body)
            assert status == 200 and ("error" in text or "[DONE]" not in text), text
        assert_answers(server, "good")


def test_one_that_dies_under_its_requests_is_started_again(tmp_path):
    pids = tmp_path / "pids"
    command = engines.scripted("slow", f"--first-token-ms 3000 --pid-file {pids}")
    with heddle.Server(config({"slow": (command, ", probe: false")})) as server:
        client = concurrent.futures.ThreadPoolExecutor(1)
        first = client.submit(ask, server, "slow")
        wait_until(pids.exists)
        time.sleep(1.5)  # Into the three seconds that its answer takes; what is asserted holds at any time.
        for pid in map(int, pids.read_text().split()):
            os.kill(pid, signal.SIGKILL)
        status, _ = first.result(60)
        assert status in (200, 502, 503), status
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


def tight_pair(options, level="sleep", kind="vllm"):
    """Two engines of 120 MiB that sleep, on a device of this machine's memory, which holds one of them."""
    port = engines.free_port(2)
    rows = "".join(
        f"  {name}: {{cmd: {json.dumps(engines.scripted(name, '--anonymous-mib 80 ' + more))}, engine: {kind}, checkEndpoint: /health,"
        f" memory: 120MiB, suspend: [{level}], drain: 100ms}}\n"
        for name, more in (("bad", options), ("good", ""))
    )
    devices = "host: {memory: 64MiB}\ndevices: [{name: cpu0, kind: cpu, memory: 160MiB, page: 64KiB}]"
    return f"listen: 127.0.0.1:0\nstartPort: {port}\n{devices}\nmodels:\n{rows}"


def test_what_a_killed_server_left_has_ended_before_the_next_takes_its_memory(tmp_path):
    text = tight_pair("--sigterm ignore --child") + f"dataDir: {tmp_path / 'data'}\n"
    server = heddle.Server(text)
    assert_answers(server, "bad")
    server.process.kill()
    server.process.wait()
    with heddle.Server(text) as again:
        log = again.log()
        assert log.index("an engine of an earlier run is ended") < log.index("arena made")


def levels(server, model):
    """What was measured of an engine's levels, by name."""
    (engine,) = (engine for engine in server.call("/api/engines")[2]["engines"] if engine["model"] == model)
    return engine["starts"], {cost["level"]: cost for cost in engine["costs"]}


@pytest.mark.parametrize("level", ["sleep", "deep_sleep"])
def test_one_that_sleeps_well_is_not_started_again(level):
    with heddle.Server(tight_pair("", level)) as server:
        for _ in range(3):
            assert_answers(server, "bad")
            assert_answers(server, "good")
        starts, costs = levels(server, "bad")
        assert starts == 1 and costs[level]["times"] >= 2 and costs[level]["insufficient"] == 0


@pytest.mark.parametrize(("kind", "options"), [("ollama", "--sleep-after 0.3"), ("triton", "")])
def test_one_that_unloads_its_model_loads_it_again(kind, options):
    with heddle.Server(tight_pair(options, "deep_sleep", kind)) as server:
        for _ in range(3):
            assert_answers(server, "bad")
            assert_answers(server, "good")
        starts, costs = levels(server, "bad")
        assert starts == 1 and costs["deep_sleep"]["times"] >= 2 and costs["deep_sleep"]["insufficient"] == 0


def test_one_that_keeps_its_memory_asleep_is_ended_instead():
    with heddle.Server(tight_pair("--leak-on-sleep-mib 70")) as server:
        assert_answers(server, "bad")
        assert_answers(server, "good")
        _, costs = levels(server, "bad")
        assert costs["sleep"]["insufficient"] >= 1 and costs["stop"]["times"] >= 1
        assert_answers(server, "bad")


def test_one_that_grows_each_time_it_wakes_does_not_keep_others_out():
    with heddle.Server(tight_pair("--grow-on-wake-mib 10")) as server:
        for _ in range(4):
            assert_answers(server, "bad")
            assert_answers(server, "good")


def test_one_that_is_silent_when_it_comes_back_answers_in_the_end(tmp_path):
    silent = tmp_path / "silent"
    more = ", suspend: [freeze]"
    text = config(
        {
            "bad": (engines.scripted("bad", f"--silent-while {silent}"), more),
            "good": (engines.scripted("good"), ", suspend: [freeze]"),
        }
    )
    with heddle.Server(text) as server:
        assert_answers(server, "bad")
        assert_answers(server, "good")
        silent.touch()
        with concurrent.futures.ThreadPoolExecutor(1) as client:
            back = client.submit(assert_answers, server, "bad")
            time.sleep(1)
            silent.unlink()
            back.result(60)
        assert_answers(server, "good")


def test_two_that_displace_each_other_are_never_there_together(tmp_path):
    pids = {name: tmp_path / name for name in ("bad", "good")}
    text = config({name: (engines.scripted(name, f"--pid-file {file}"), "") for name, file in pids.items()})

    def there(name):
        return pids[name].exists() and any(alive(int(line)) for line in pids[name].read_text().split())

    with heddle.Server(text) as server:
        with concurrent.futures.ThreadPoolExecutor(6) as clients:
            asked = [clients.submit(assert_answers, server, name) for name in ("bad", "good") * 3]
            while not all(answer.done() for answer in asked):
                assert not (there("bad") and there("good"))
                time.sleep(0.005)
        for answer in asked:
            answer.result()


def test_a_reload_brings_engines_and_takes_them_away(tmp_path):
    pids = tmp_path / "pids"
    text = config({"old": (engines.scripted("old", f"--pid-file {pids}"), "")})
    with heddle.Server(text) as server:
        assert_answers(server, "old")
        (pid,) = map(int, pids.read_text().split())
        server.config_path.write_text(config({"new": (engines.scripted("new"), "")}))
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: ask(server, "new")[0] == 200)
        wait_until(lambda: not alive(pid))
        assert ask(server, "old")[0] == 404
