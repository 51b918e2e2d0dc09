"""What stops, hangs, is debugged or starved: noticed in seconds where it harms, and left alone where it does not."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import engines
import pytest
import server as heddle

PACED = ", pace: {step: 25ms}"  # So that a stream lasts long enough to be disturbed.
STREAMS = 20
TOKENS = 120
LOAD_SECONDS = 1.0  # A worker's start and a model's load, on two cores beside others.
MODEL = "adder"


@pytest.fixture
def paced():
    with heddle.Server(heddle.config(models=[MODEL], memory="8MiB", device_extra=PACED)) as running:
        heddle_ready(running)
        running.chat(MODEL, "1+2=", max_tokens=2)
        yield running


def heddle_ready(server, seconds=30):
    wait_until(lambda: server.call("/readyz")[0] == 200, seconds)


def wait_until(condition, seconds=20, step=0.02):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(step)


class Stream(threading.Thread):
    """A streamed answer, with the time of each of its tokens."""

    def __init__(self, server, number, tokens=TOKENS):
        super().__init__(daemon=True)
        self.url = server.url
        self.body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"{number}+{number + 1}="}],
            "temperature": 2,
            "seed": number,
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        self.text, self.times, self.error = "", [], None
        self.finish = None
        self.start()

    def run(self):
        request = urllib.request.Request(
            self.url + "/v1/chat/completions", json.dumps(self.body).encode(), {"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as response:
                for line in response:
                    if line.startswith(b"data: {"):
                        self.take(json.loads(line[6:]))
        except OSError as error:
            self.error = error

    def take(self, event):
        if "error" in event:
            self.error = event["error"]
            return
        for choice in event["choices"]:
            self.text += choice["delta"].get("content") or ""
            self.finish = choice["finish_reason"] or self.finish
            self.times.append(time.monotonic())

    def longest_gap(self):
        return max((b - a for a, b in zip(self.times, self.times[1:])), default=0)

    def first_after(self, when):
        return min((at - when for at in self.times if at > when), default=None)


def undisturbed(server, count=STREAMS, tokens=TOKENS):
    streams = [Stream(server, number, tokens) for number in range(count)]
    for each in streams:
        each.join()
        assert each.error is None
    return [each.text for each in streams]


def begun(server, count=STREAMS, tokens=TOKENS):
    streams = [Stream(server, number, tokens) for number in range(count)]
    wait_until(lambda: all(len(each.times) > 3 or each.error for each in streams), 60)
    return streams


def ended(streams):
    for each in streams:
        each.join(120)
        assert not each.is_alive() and each.error is None, each.error
    return [each.text for each in streams]


def hangs(server):
    """{reason: count} of workers that were ended for hanging."""
    rows = server.metrics()
    reasons = ("stopped", "silent", "start", "stuck")
    return {r: n for r in reasons if (n := sum(v for k, v in rows.items() if k.startswith("heddle_worker_hung_total") and f'"{r}"' in k))}


def suspected(server):
    return sum(v for k, v in server.metrics().items() if k.startswith("heddle_worker_suspected_total"))


def go_on(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def stop_worker_under_streams(server, expected):
    streams = begun(server)
    worker = server.workers()[0]
    os.kill(worker, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        assert ended(streams) == expected
    finally:
        go_on(worker)
    waits = [each.first_after(stopped + 0.2) for each in streams]
    assert max(waits) <= 3 + LOAD_SECONDS, waits
    assert worker not in server.workers()


def test_the_requests_of_a_stopped_worker_go_on_within_three_seconds(paced):
    expected = undisturbed(paced)
    stop_worker_under_streams(paced, expected)
    assert hangs(paced) == {"stopped": 1}
    assert "worker may hang" in paced.log() and "a signal has stopped it" in paced.log()


@pytest.mark.slow
def test_fifty_workers_that_are_stopped_lose_nothing(paced):
    expected = undisturbed(paced)
    for _ in range(50):
        stop_worker_under_streams(paced, expected)
    assert hangs(paced) == {"stopped": 50}


def test_readiness_tells_of_a_worker_that_is_stopped(paced):
    worker = paced.workers()[0]
    os.kill(worker, signal.SIGSTOP)
    seen = []

    def told():
        status, _, body = paced.call("/readyz")
        seen.append((status, body))
        return status == 503 and "stopped" in json.dumps(body)

    try:
        wait_until(told, 5, 0.05)
        assert paced.call("/health")[0] == 200
        heddle_ready(paced)
        assert worker not in paced.workers()
    finally:
        go_on(worker)


def test_one_that_is_stopped_for_half_a_second_goes_on(paced):
    expected = undisturbed(paced, 4)
    streams = begun(paced, 4)
    worker = paced.workers()[0]
    for _ in range(5):
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(worker, signal.SIGCONT)
        time.sleep(0.5)
    assert ended(streams) == expected
    assert hangs(paced) == {} and paced.workers() == [worker]


@pytest.mark.parametrize("alone", [False, True], ids=["with its workers", "alone"])
def test_a_server_that_is_stopped_and_continued_kills_no_worker(paced, alone):
    expected = undisturbed(paced, 4)
    streams = begun(paced, 4)
    workers = paced.workers()
    everybody = [paced.process.pid] + ([] if alone else workers)
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
    assert ended(streams) == expected
    time.sleep(3)  # In which a false alarm would be acted upon.
    assert hangs(paced) == {} and suspected(paced) == 0 and paced.workers() == workers
    assert "loop stood still" in paced.log()


TRACER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
threads = [int(name) for name in os.listdir(f"/proc/{sys.argv[1]}/task")]
for thread in threads:
    if libc.ptrace(PTRACE_ATTACH, thread, None, None) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    os.waitpid(thread, 0x40000000)  # __WALL
print("traced", flush=True)
time.sleep(5)
for thread in threads:
    libc.ptrace(PTRACE_DETACH, thread, None, None)
"""


def test_a_worker_under_a_debugger_is_left_alone(paced):
    expected = undisturbed(paced, 4)
    streams = begun(paced, 4)
    worker = paced.workers()[0]
    tracer = subprocess.Popen([sys.executable, "-c", TRACER, str(worker)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if tracer.stdout.readline() != "traced\n":
        pytest.skip(f"this account may not trace: {tracer.communicate()[1]}")
    assert tracer.wait(30) == 0
    assert ended(streams) == expected
    time.sleep(2)
    assert hangs(paced) == {} and paced.workers() == [worker]
    assert paced.log().count("worker is not watched") == 1


def test_starvation_is_no_hang(paced):
    expected = undisturbed(paced, 4)
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        worker = paced.workers()
        until = time.monotonic() + (20 if os.environ.get("HEDDLE_SLOW_TESTS") else 8)
        while time.monotonic() < until:
            assert undisturbed(paced, 4) == expected
        assert hangs(paced) == {} and suspected(paced) == 0 and paced.workers() == worker
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@pytest.fixture
def freezer():
    """A control group of this test's own, of version 2."""
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    unified = [mount[1] for mount in mounts if mount[2] == "cgroup2"]
    if not unified:
        pytest.skip("there are no control groups of version 2")
    path = pathlib.Path(unified[0], f"heddle-test-{os.getpid()}")
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"this account has no control group of version 2: {error}")
    yield path
    path.joinpath("cgroup.freeze").write_text("0")
    wait_until(lambda: not path.joinpath("cgroup.procs").read_text().strip(), 30)
    path.rmdir()


def test_a_worker_that_is_frozen_is_replaced(freezer):
    with heddle.Server(heddle.config(models=[MODEL], memory="8MiB", device_extra=PACED)) as server:
        expected = undisturbed(server, 4)
        streams = begun(server, 4)
        worker = server.workers()[0]
        freezer.joinpath("cgroup.procs").write_text(str(worker))
        freezer.joinpath("cgroup.freeze").write_text("1")
        assert ended(streams) == expected
        assert hangs(server) == {"silent": 1} and server.workers() != [worker]


STUCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
/* The engine thread sleeps to keep its pace; while the file is there it does something else for good. */
static int act(void) {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  if (strcmp(name, "engine") != 0 || access(FILE_NAME, F_OK) != 0) return 0;
  unlink(FILE_NAME);
  for (;;) DO;
}
int nanosleep(const struct timespec* time, struct timespec* left) {
  act();
  return ((int (*)(const struct timespec*, struct timespec*))dlsym(RTLD_NEXT, "nanosleep"))(time, left);
}
int clock_nanosleep(clockid_t clock, int flags, const struct timespec* time, struct timespec* left) {
  act();
  return ((int (*)(clockid_t, int, const struct timespec*, struct timespec*))dlsym(RTLD_NEXT, "clock_nanosleep"))(
      clock, flags, time, left);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["pause()", "(void)0"], ids=["sleeps", "loops"])
def test_a_step_that_never_ends_is_ended(tmp_path, what):
    compiler = shutil.which("clang-19") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    stuck, source, library = tmp_path / "stuck", tmp_path / "stuck.c", tmp_path / "stuck.so"
    source.write_text(STUCK)
    define = [f'-DFILE_NAME="{stuck}"', f"-DDO={what}"]
    subprocess.run([compiler, "-shared", "-fPIC", "-O0", *define, "-o", library, source, "-ldl"], check=True)
    text = heddle.config(models=[MODEL], memory="8MiB", device_extra=PACED)
    with heddle.Server(text, env={"LD_PRELOAD": str(library)}) as server:
        expected = undisturbed(server, 4)
        streams = begun(server, 4)
        worker = server.workers()[0]
        stuck.write_text("")
        assert ended(streams) == expected
        assert hangs(server) == {"stuck": 1} and server.workers() != [worker]
        assert "its engine thread has been in a step" in server.log()


def kill_again_and_again(server, seconds):
    """Kills the worker every four seconds under clients who stream and clients who come now and then."""
    over = threading.Event()
    waits, wrong = [], []
    expected = undisturbed(server, 4)

    def talk(number):
        while not over.is_set():
            each = Stream(server, number)
            began = time.monotonic()
            each.join(120)
            if each.error is not None or each.text != expected[number]:
                wrong.append((each.error, each.text))
                return
            waits.append(max(each.times[0] - began, each.longest_gap()))

    def visit():
        while not over.is_set():
            began = time.monotonic()
            status, _, answer = server.call("/v1/completions", {"model": MODEL, "prompt": "1+1=", "max_tokens": 1})
            waits.append(time.monotonic() - began)
            if status != 200:
                wrong.append(answer)
            time.sleep(0.7)

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        clients = [pool.submit(talk, number) for number in range(4)] + [pool.submit(visit)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(4)
            for worker in server.workers():
                os.kill(worker, signal.SIGKILL)
        over.set()
        for client in clients:
            client.result()
    assert not wrong, wrong[:3]
    assert max(waits) <= 3 + LOAD_SECONDS, sorted(waits)[-5:]


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [40 / 60, 10])
def test_workers_that_are_killed_every_four_seconds_hold_nobody_up(paced, minutes):
    kill_again_and_again(paced, minutes * 60)


def test_three_kills_in_a_row_hold_nobody_up(paced):
    kill_again_and_again(paced, 10)


# ---- External engines ----


def engine_config(options="", more=""):
    command = engines.scripted("other", options)
    gpu = "{name: gpu, kind: external, memory: 1GiB}"
    return (
        f"listen: 127.0.0.1:0\nstartPort: {engines.free_port()}\ndevices: [{gpu}]\n"
        f"models:\n  other: {{cmd: {json.dumps(command)}{more}}}\n"
    )


def ask_engine(server, **options):
    body = {"model": "other", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5, **options}
    return server.call("/v1/chat/completions", body, timeout=90)


def engine_process(server):
    found = [pid for pid in heddle.children(server.process.pid) if "engine.py" in heddle.command_line(pid)]
    return found[0] if found else None


def engine_hangs(server):
    return sum(v for k, v in server.metrics().items() if k.startswith("heddle_engine_hung_total"))


def test_an_engine_that_is_stopped_is_started_anew_and_asked_again():
    with heddle.Server(engine_config()) as server:
        assert ask_engine(server)[0] == 200
        engine = engine_process(server)
        os.kill(engine, signal.SIGSTOP)
        began = time.monotonic()
        try:
            status, _, answer = ask_engine(server)
            assert status == 200, answer
            assert time.monotonic() - began < 15
        finally:
            go_on(engine)
        assert engine_process(server) != engine and engine_hangs(server) == 1
        assert "engine may hang" in server.log()


def test_an_engine_that_is_stopped_together_with_the_server_goes_on():
    with heddle.Server(engine_config()) as server:
        assert ask_engine(server)[0] == 200
        engine = engine_process(server)
        for pid in (server.process.pid, engine):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4)
        for pid in (engine, server.process.pid):
            os.kill(pid, signal.SIGCONT)
        assert ask_engine(server)[0] == 200
        time.sleep(3)
        assert engine_process(server) == engine and engine_hangs(server) == 0


@pytest.mark.slow
def test_an_engine_that_answers_nothing_any_more_is_started_anew(tmp_path):
    silent = tmp_path / "silent"
    with heddle.Server(engine_config(f"--silent-while {silent}")) as server:
        assert ask_engine(server)[0] == 200
        engine = engine_process(server)
        silent.write_text("")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask_engine, server)
            wait_until(lambda: server.call("/readyz")[0] == 503, 30)
            wait_until(lambda: engine_process(server) != engine, 60)
            silent.unlink()
            assert answer.result()[0] == 200
        assert engine_hangs(server) == 1


@pytest.mark.slow
def test_an_engine_that_thinks_for_long_is_left_alone():
    # Probes of its start would think for long, too.
    with heddle.Server(engine_config("--first-token-ms 40000", ", probe: false")) as server:
        status, _, answer = ask_engine(server)
        assert status == 200, answer
        assert engine_hangs(server) == 0
