"""Load on a cluster for tests: clients that ask without a pause and compare what they get."""

import collections
import concurrent.futures
import threading
import time
import urllib.error

import server as heddle
from test_cluster import wait_until


class Clients:
    """Four that ask without a pause, each question at one gateway or another, and compare with what was answered at
    rest. A gateway may be said to be down: whom it cuts off asks at another."""

    def __init__(self, running, answers):
        self.running, self.answers = running, answers
        self.counts = collections.Counter()
        self.wrong = []
        self.slowest = 0
        self.down = set()
        self._ends = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self):
        self._pool = concurrent.futures.ThreadPoolExecutor(4)
        self._runs = [self._pool.submit(self._run, number) for number in range(4)]
        return self

    def __exit__(self, *_):
        self._ends.set()
        for run in self._runs:
            run.result(120)
        self._pool.shutdown()

    def _run(self, number):
        questions = list(self.answers)
        turn = number * 7
        while not self._ends.is_set():
            turn += 1
            model, prompt = questions[turn % len(questions)]
            gateways = [gateway for gateway in self.running.gateways if gateway not in self.down]
            self._ask(gateways[turn % len(gateways)], model, prompt)

    def _ask(self, gateway, model, prompt):
        began = time.monotonic()
        try:
            got = gateway.chat(model, prompt)
        except (OSError, urllib.error.URLError, AssertionError) as error:
            if gateway in self.down:
                return  # It died with this request: the client asks elsewhere.
            got = f"{gateway.name}: {error!r}"
        with self._lock:
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.counts[model] += 1
            if got != self.answers[(model, prompt)]:
                self.wrong.append((model, prompt, got))

    def more(self, seconds=0, answers=8):
        """Goes on for so long, and for so many answers of all models together."""
        until = time.monotonic() + seconds
        before = self.counts.total()
        wait_until(lambda: time.monotonic() >= until and self.counts.total() >= before + answers, 60 + seconds)

    def check(self):
        assert not self.wrong, self.wrong[:3]


def up(running):
    """Until all hosts are linked, and every worker is up."""
    def known(gateway):
        hosts = gateway.call("/api/hosts")[2]["hosts"]
        devices = gateway.call("/api/devices")[2]["devices"]
        return (
            all(host["state"] == "here" for host in hosts)
            and len(devices) == len(running.hosts)
            and all(device["up"] for device in devices)
        )

    for gateway in running.gateways:
        wait_until(lambda g=gateway: known(g), 60)


def at_rest(running):
    """{(model, prompt): what is answered at rest}; makes sure that this is right."""
    asked = [(model, prompt, answer) for model in running.models for prompt, answer in heddle.eval_set(model, 12)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda one: running.gateways[0].chat(one[0], one[1]), asked))
    assert sum(text != one[2] for text, one in zip(got, asked)) <= 1
    return {(one[0], one[1]): text for text, one in zip(got, asked)}
