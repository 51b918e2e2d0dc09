"""Requests that run go on elsewhere with their KV, where their host is to go."""

import re
import signal
import subprocess

import cluster
import pytest
import server as heddle
from test_cluster import Stream
from test_fetch import wait_until
from test_hybrid import with_words

LONGER = 200  # Tokens of an answer that takes longer than anything else here.
PACE = ", pace: {step: 60ms}"
MOVED = re.compile(r"KV of (\d+) tokens has come, (\d+) are computed again")
BLOCK = 32  # No block of KV has as many tokens.
ROWS = [f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: float32, min_residence: 0s}}\n"]
PROMPT = "1 2 3 " * 4


@pytest.fixture(scope="module")
def expected():
    with heddle.Server(heddle.config(memory="8MiB", models=ROWS)) as alone:
        body = {"model": "adder", "prompt": PROMPT, "max_tokens": LONGER, "temperature": 0, "ignore_eos": True}
        return alone.call("/v1/completions", body)[2]["choices"][0]["text"]


class Hosts(cluster.Cluster):
    def __init__(self, rows=ROWS):
        super().__init__(hosts=2, models=rows, memory="16MiB", device_extra=PACE)

    def __enter__(self):
        super().__enter__()
        self.gateway = self.gateways[0]
        wait_until(lambda: len(self.gateway.call("/v1/models")[2]["data"]) == 1)
        wait_until(lambda: all(d["up"] for d in self.gateway.call("/api/devices")[2]["devices"]))
        return self

    def holders(self):
        devices = self.gateway.call("/api/devices")[2]["devices"]
        return [d["name"].partition("/")[0] for d in devices if d["models"]]

    def running_on(self):
        return next(node for node in self.hosts if node.name == self.holders()[0])

    def drains(self, host):
        return subprocess.Popen([heddle.BINARY, "drain", host.name, "--url", self.gateway.url])

    def moved(self):
        why = [one["why"] for one in self.gateway.call("/api/decisions")[2]["decisions"]]
        return [tuple(map(int, m.groups())) for m in map(MOVED.search, why) if m]

    def counted(self, name):
        return self.gateway.metrics()[f'heddle_kv_{name}_tokens_total{{model_name="adder"}}']


def test_a_host_that_is_drained_does_not_wait_for_the_end_of_long_answers(expected):
    with Hosts() as hosts:
        streams = [Stream(hosts.gateway, "adder", PROMPT, LONGER, n=n).began() for n in (1, 1, 2)]
        first = hosts.running_on()
        assert hosts.drains(first).wait(60) == 0
        assert not any(stream.ended() for stream in streams), "the host is empty before the answers have ended"
        assert first.name not in hosts.holders()
        assert streams[0].text() == streams[1].text() == expected
        assert len(streams[2].text()) == 2 * len(expected)
        moved = hosts.moved()
        assert len(moved) == 4, "of each choice"
        assert sum(tokens for tokens, _ in moved) == hosts.counted("moved") > 4 * len(PROMPT)
        assert max(again for _, again in moved) < BLOCK
        assert sum(again for _, again in moved) == hosts.counted("computed_again")


def test_states_of_linear_attention_move_with_kv(tmp_path):
    path = with_words("qwen3-5-f32", tmp_path / "hybrid")
    rows = [f"  hybrid: {{path: {path}, dtype: float32, min_residence: 0s}}\n"]
    prompt, tokens = "t3 t5 t8 t13 t21 t34 t55 " * 3, 100
    with heddle.Server(heddle.config(memory="8MiB", models=rows)) as alone:
        body = {"model": "hybrid", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        told = alone.call("/v1/completions", body)[2]["choices"][0]["text"]
    with Hosts(rows) as hosts:
        stream = Stream(hosts.gateway, "hybrid", prompt, tokens).began()
        first = hosts.running_on()
        assert hosts.drains(first).wait(60) == 0
        assert stream.text() == told
        ((moved, again),) = hosts.moved()
        assert moved >= 16 and again < BLOCK


def test_where_the_one_that_has_the_kv_dies_it_is_computed_again(expected):
    with Hosts() as hosts:
        streams = [Stream(hosts.gateway, "adder", PROMPT, LONGER).began() for _ in range(3)]
        first = hosts.running_on()
        drain = hosts.drains(first)
        wait_until(lambda: hosts.moved())
        first.signal(signal.SIGKILL)
        assert [stream.text() for stream in streams] == [expected] * 3
        drain.kill()


def test_where_the_one_that_has_the_kv_hangs_nobody_waits_for_it(expected):
    with Hosts() as hosts:
        stream = Stream(hosts.gateway, "adder", PROMPT, LONGER).began()
        first = hosts.running_on()
        second = next(node for node in hosts.hosts if node is not first)
        drain = hosts.drains(first)
        second.await_line(r"told to load model=adder|load model=adder")
        first.signal(signal.SIGSTOP)
        try:
            assert stream.text() == expected
        finally:
            first.signal(signal.SIGCONT)
            drain.kill()
