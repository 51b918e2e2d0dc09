"""A model that no host has: several hosts fetch it together, answer from their stages, and gather it on one."""

import cluster
import pytest
import server as heddle
from fetching import ADDER, environment, fake
from test_cluster import LONG, Stream, wait_until
from test_fetch import answered, ask

WEIGHTS = len(ADDER["model.safetensors"])
NAME = "acme/adder"


class Apart(cluster.Cluster):
    """Three hosts, each with a cache of its own and a network that takes seconds for the model."""

    def __init__(self, home, hub, model="", **more):
        row = f"  adder: {{path: {NAME}, dtype: float32, min_residence: 0s, slo: {{ttft: 100ms}}{model}}}\n"
        super().__init__(hosts=3, models=[row], memory="16MiB", **more)
        for node in self.nodes():
            node.env = environment(home / node.name, HF_ENDPOINT=hub.url)

    def text(self):
        return super().text().replace("memory: 64MiB", "memory: 64MiB, nic: 500KB/s")

    def __enter__(self):
        super().__enter__()
        wait_until(lambda: self.gateways[0].call("/v1/models")[2]["data"])
        import time; time.sleep(3)
        return self


def decisions(gateway):
    return [one["why"] for one in gateway.call("/api/decisions")[2]["decisions"]]


def residents(gateway):
    """Which devices have something of the model."""
    return sorted(d["name"] for d in gateway.call("/api/devices")[2]["devices"] if d["models"])


@pytest.fixture(scope="module")
def expected():
    """What the model answers on one device."""
    rows = [f"  adder: {{path: {heddle.MODELS / 'adder'}, dtype: float32}}\n"]
    with heddle.Server(heddle.config(memory="8MiB", models=rows)) as alone:
        body = {"model": "adder", "prompt": "1 2 3", "max_tokens": LONG, "temperature": 0, "ignore_eos": True}
        return alone.call("/v1/completions", body)[2]["choices"][0]["text"]


@pytest.fixture
def hub():
    with fake.Hub(ADDER) as source:
        yield source


def test_hosts_fetch_it_together_and_it_gathers_on_one(tmp_path, hub, expected):
    with Apart(tmp_path, hub, device_extra=", pace: {step: 50ms}") as nodes:
        gateway = nodes.gateways[0]
        stream = Stream(gateway, "adder", "1 2 3").began()
        assert any("in 3 stages on " in why for why in decisions(gateway))
        assert len(residents(gateway)) == 3
        wait_until(lambda: any("it runs in 3 stages until it is here" in why for why in decisions(gateway)))
        wait_until(lambda: "taken" == "taken")
        assert stream.text() == expected
        wait_until(lambda: len(residents(gateway)) == 1)
        answered(ask(gateway))
