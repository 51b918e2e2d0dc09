"""A model that no host has: several hosts fetch it together, answer from their stages, and gather it on one."""

import re

import cluster
import pytest
import server as heddle
from fetching import ADDER, environment, fake
from test_cluster import LONG, Stream
from test_fetch import wait_until

WEIGHTS = len(ADDER["model.safetensors"])
NAME = "acme/adder"
TOGETHER = re.compile(r"in ([23]) stages on ([^ ,]+), ")
GATHERS = "stages until it is here"
MOVES = "requests in its stages comes"
MOVED = re.compile(r"KV of (\d+) tokens has come, (\d+) are computed again")
BLOCK = 32  # No block of KV has as many tokens.
LONGER = 220  # Tokens of an answer that goes on when the whole model is there.


class Apart(cluster.Cluster):
    """Three hosts, each with a cache of its own and a network that takes some seconds for the model."""

    def __init__(self, home, hub, model="", memory="16MiB", others=()):
        row = f"  adder: {{path: {NAME}, dtype: float32, min_residence: 0s, slo: {{ttft: 100ms}}{model}}}\n"
        super().__init__(hosts=3, models=[row, *others], memory=memory, device_extra=", pace: {step: 40ms}")
        for node in self.nodes():
            node.env = environment(home / node.name, HF_ENDPOINT=hub.url)

    def text(self):
        return super().text().replace("memory: 64MiB", "memory: 64MiB, nic: 1MB/s")

    def __enter__(self):
        super().__enter__()
        for host in self.hosts:
            host.await_line("a source has said what its model is model=adder")
        wait_until(lambda: len(self.gateways[0].call("/v1/models")[2]["data"]) == len(self.models))
        return self

    def host(self, device):
        return next(node for node in self.hosts if node.name == device.partition("/")[0])


def decisions(gateway):
    return [one["why"] for one in gateway.call("/api/decisions")[2]["decisions"]]


def together(gateway):
    """In how many stages the model started, and which device leads them."""
    found = wait_until(lambda: [m for m in map(TOGETHER.search, decisions(gateway)) if m])
    return int(found[0][1]), found[0][2]


def holders(gateway):
    """The devices that have something of the model."""
    return sorted(d["name"] for d in gateway.call("/api/devices")[2]["devices"] if d["models"])


def fetched(host):
    """What it has fetched, load by load [bytes]."""
    return [int(size) for size in re.findall(r"fetched model=adder bytes=(\d+)", host.log())]


@pytest.fixture(scope="module")
def texts():
    """What the model answers on one device, by how many tokens it may have."""
    rows = [f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: float32}}\n"]
    found = {}
    with heddle.Server(heddle.config(memory="8MiB", models=rows)) as alone:
        for tokens in (LONG, LONGER):
            body = {"model": "adder", "prompt": "1 2 3", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
            found[tokens] = alone.call("/v1/completions", body)[2]["choices"][0]["text"]
    return found


@pytest.fixture(scope="module")
def expected(texts):
    return texts[LONG]


@pytest.fixture
def hub():
    with fake.Hub(ADDER) as source:
        yield source


def test_hosts_fetch_it_together_and_it_gathers_on_one(tmp_path, hub, texts):
    with Apart(tmp_path, hub) as nodes:
        gateway = nodes.gateways[0]
        stream = Stream(gateway, "adder", "1 2 3", LONGER).began()
        stages, leader = together(gateway)
        parts = [sum(fetched(host)) for host in nodes.hosts if fetched(host)]
        assert len(parts) == len(holders(gateway)) == stages
        assert max(parts) < 0.75 * WEIGHTS and sum(parts) < 1.2 * WEIGHTS
        shown = [d["stage"]["stages"] for d in gateway.call("/api/devices")[2]["devices"] if d.get("stage")]
        assert shown == [stages] * stages
        wait_until(lambda: any(GATHERS in why for why in decisions(gateway)))
        wait_until(lambda: len(fetched(nodes.host(leader))) == 2)
        assert sum(fetched(nodes.host(leader))) <= WEIGHTS, "nothing comes twice"
        wait_until(lambda: holders(gateway) == [leader])
        assert not stream.ended(), "the stages are free before the answer has ended"
        assert stream.text() == texts[LONGER]
        moved, again = map(int, wait_until(lambda: [m for m in map(MOVED.search, decisions(gateway)) if m])[0].groups())
        assert moved > 0 and again < BLOCK
        counted = gateway.metrics()
        assert counted['heddle_kv_moved_tokens_total{model_name="adder"}'] == moved
        assert counted['heddle_kv_computed_again_tokens_total{model_name="adder"}'] == again
        assert Stream(gateway, "adder", "1 2 3").text() == texts[LONG]
        assert holders(gateway) == [leader]


def test_all_requests_in_the_stages_go_on_in_the_whole(tmp_path, hub, texts):
    with Apart(tmp_path, hub) as nodes:
        gateway = nodes.gateways[0]
        streams = [Stream(gateway, "adder", "1 2 3", LONGER).began()]
        _, leader = together(gateway)
        streams += [Stream(gateway, "adder", "1 2 3", LONGER) for _ in range(2)]
        choices = Stream(gateway, "adder", "1 2 3", LONGER, n=2)
        wait_until(lambda: any(MOVES in why for why in decisions(gateway)))
        wait_until(lambda: holders(gateway) == [leader])
        for stream in streams:
            assert stream.text() == texts[LONGER]
        assert len(choices.text()) == 2 * len(texts[LONGER])
        assert all(int(again) < 2 * BLOCK for _, again in re.findall(MOVED, " ".join(decisions(gateway))))


@pytest.mark.parametrize("phase", ["fetch", "serve", "gather", "move", "move first"])
def test_whoever_dies_at_whatever_phase_the_answer_is_the_same(tmp_path, hub, texts, phase):
    tokens = LONGER if phase.startswith("move") else LONG
    with Apart(tmp_path, hub) as nodes:
        gateway = nodes.gateways[0]
        stream = Stream(gateway, "adder", "1 2 3", tokens)
        _, leader = together(gateway)
        follower = next(host for host in nodes.hosts if host is not nodes.host(leader))
        if phase == "fetch":
            follower.await_line("fetch model=adder")
            follower.kill()
        elif phase == "serve":
            stream.began()
            nodes.host(leader).kill()
        elif phase == "gather":
            stream.began()
            wait_until(lambda: any(GATHERS in why for why in decisions(gateway)))
            follower.kill()
        else:
            stream.began()
            wait_until(lambda: any(MOVES in why for why in decisions(gateway)))
            (follower if phase == "move" else nodes.host(leader)).kill()
        assert stream.text() == texts[tokens]


def test_a_manager_that_takes_over_goes_on_where_the_last_one_was(tmp_path, hub, expected):
    with Apart(tmp_path, hub) as nodes:
        gateway, manager = nodes.gateways[0], nodes.managers[0]
        stream = Stream(gateway, "adder", "1 2 3").began()
        _, leader = together(gateway)
        before = {host.name: fetched(host)[0] for host in nodes.hosts if fetched(host)}
        manager.kill()
        manager.restart()
        wait_until(lambda: any(GATHERS in why for why in decisions(gateway)))
        assert stream.text() == expected
        wait_until(lambda: holders(gateway) == [leader])
        for host in nodes.hosts:
            assert sum(fetched(host)) == (WEIGHTS if host is nodes.host(leader) else before.get(host.name, 0))
        assert not any(TOGETHER.search(why) for why in decisions(gateway)), "what was there was taken up"


def test_other_models_answer_beside_the_stages(tmp_path, hub, expected):
    others = [f"  {name}: {{path: {heddle.MODELS / name}}}\n" for name in ("morse", "sorter")]
    with Apart(tmp_path, hub, others=others, memory="32MiB") as nodes:
        gateway = nodes.gateways[0]
        first = [Stream(gateway, name, "1 2 3", 8).text() for name in ("morse", "sorter")]
        stream = Stream(gateway, "adder", "1 2 3").began()
        together(gateway)
        assert [Stream(gateway, name, "1 2 3", 8).text() for name in ("morse", "sorter")] == first
        assert stream.text() == expected
        assert not any("idle_victims" in why for why in decisions(gateway)), "all have room"


def test_where_no_device_has_room_for_the_whole_it_stays_in_stages(tmp_path, hub, expected):
    with Apart(tmp_path, hub, memory="8MiB") as nodes:
        gateway = nodes.gateways[0]
        assert Stream(gateway, "adder", "1 2 3").text() == expected
        stages, _ = together(gateway)
        assert len(holders(gateway)) == stages
        assert not any(GATHERS in why for why in decisions(gateway))
        assert any("it stays in its stages" in why for why in decisions(gateway))
        assert gateway.call("/models/unload", {"model": "adder"})[0] == 200
        wait_until(lambda: not holders(gateway))


def test_one_host_alone_where_the_configuration_says_so(tmp_path, hub, expected):
    with Apart(tmp_path, hub, model=", cold_start_hosts: 1") as nodes:
        gateway = nodes.gateways[0]
        assert Stream(gateway, "adder", "1 2 3").text() == expected
        assert len(holders(gateway)) == 1
        assert not any(TOGETHER.search(why) for why in decisions(gateway))
