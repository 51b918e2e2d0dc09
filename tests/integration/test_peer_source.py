"""Hosts of a cluster that take a model from each other's caches, and from its source where they cannot."""

import os
import subprocess

import cluster
import pytest
import server as heddle
from fetching import ADDER, environment, fake
from test_fetch import right, wait_until

WEIGHTS = ADDER["model.safetensors"]
NAME = "acme/adder"
AWAY = "http://127.0.0.1:9"  # Where nobody listens.


class Apart(cluster.Cluster):
    """Hosts with caches of their own."""

    def __init__(self, home, hub, hosts=3, away=(), nic="", name=NAME, together=1):
        more = f"cold_start_hosts: {together}, slo: {{ttft: 100ms}}"
        row = f"  adder: {{path: {name}, dtype: float32, min_residence: 0s, {more}}}\n"
        self.nic = nic
        super().__init__(hosts=hosts, models=[row], memory="8MiB")
        for node in self.nodes():
            node.env = environment(home / node.name, HF_ENDPOINT=AWAY if node.name in away else hub.url)

    def text(self):
        return super().text().replace("memory: 64MiB", "memory: 64MiB" + self.nic)

    @property
    def gateway(self):
        return self.gateways[0]

    def learnt(self, names):
        for host in self.hosts:
            if host.name in names:
                host.await_line("a source has said what its model is model=adder")
        wait_until(lambda: self.gateway.call("/v1/models")[2]["data"])

    def holder(self):
        """The host that has the model."""

        def names():
            devices = self.gateway.call("/api/devices")[2]["devices"]
            return [device["name"].partition("/")[0] for device in devices if device["models"]]

        wait_until(lambda: len(names()) == 1)
        return next(host for host in self.hosts if host.name == names()[0])

    def drain(self, host):
        self.drains(host).wait(60)

    def drains(self, host):
        command = [heddle.BINARY, "drain", host.name, "--url", self.gateway.url]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def weights_sent(source):
    """Bytes of weights that requests have asked a source for. Whether a file is there, a web server is asked by its first
    byte."""
    total = 0
    site = getattr(source, "network", source)
    with site.lock:
        for path, headers in site.requests:
            if "model.safetensors" in path:
                first, last = (int(at) for at in headers["Range"].removeprefix("bytes=").split("-"))
                total += min(last + 1, len(WEIGHTS)) - first if last > 0 else 0
    return total


def counted(gateway, kind):
    name = f'heddle_fetch_bytes_total{{model="adder",source_kind="{kind}"}}'
    return gateway.metrics().get(name, 0)


@pytest.mark.parametrize("kind", ["hub", "http"])
def test_the_source_gives_the_weights_once(tmp_path, kind):
    source = fake.Hub(ADDER) if kind == "hub" else fake.Site(ADDER)
    with source as hub, Apart(tmp_path, hub, name=NAME if kind == "hub" else hub.url) as nodes:
        nodes.learnt({"h1", "h2", "h3"})
        assert right(nodes.gateway)
        first = nodes.holder()
        sent = weights_sent(hub)
        nodes.drain(first)
        assert right(nodes.gateway)
        second = nodes.holder()
        assert second is not first
        second.await_line(rf"fetched model=adder bytes=\d+ from={first.name} ")
        nodes.drain(second)
        assert right(nodes.gateway)
        assert nodes.holder() not in (first, second)
        assert weights_sent(hub) == sent, "the others took none of the weights from there"
        whys = [one["why"] for one in nodes.gateway.call("/api/decisions")[2]["decisions"]]
        assert any(f"from the caches of {first.name}" in why for why in whys)
        wait_until(lambda: counted(nodes.gateway, "peer") >= 2 * 0.7 * len(WEIGHTS))
        assert counted(nodes.gateway, kind) <= 1.3 * len(WEIGHTS)


def test_where_a_host_dies_the_rest_comes_from_the_source(tmp_path):
    with fake.Hub(ADDER) as hub, Apart(tmp_path, hub, hosts=2, nic=", nic: 700KB/s") as nodes:
        nodes.learnt({"h1", "h2"})
        assert right(nodes.gateway)
        first = nodes.holder()
        second = next(host for host in nodes.hosts if host is not first)
        first.await_line("fetched model=adder")
        sent = weights_sent(hub)
        drains = nodes.drains(first)
        second.await_line("fetch model=adder")
        first.kill()
        drains.wait(60)
        assert right(nodes.gateway)
        second.await_line(r"fetched model=adder")
        assert "host " + first.name + " does not give model.safetensors" in second.log()
        assert 0 < weights_sent(hub) - sent


def test_a_host_learns_and_takes_a_model_whose_source_is_away(tmp_path):
    with fake.Hub(ADDER) as hub, Apart(tmp_path, hub, hosts=2, away=("h2",)) as nodes:
        nodes.learnt({"h1"})
        assert right(nodes.gateway)
        first, second = nodes.hosts
        assert nodes.holder() is first
        nodes.learnt({"h2"})
        nodes.drain(first)
        assert right(nodes.gateway) and nodes.holder() is second
        second.await_line(r"fetched model=adder bytes=\d+ from=h1 ")


def test_stages_of_a_cold_start_take_their_parts_from_a_host_that_has_all(tmp_path):
    away = ("h2", "h3")
    with fake.Hub(ADDER) as hub, Apart(tmp_path, hub, away=away, nic=", nic: 1MB/s", together=2) as nodes:
        nodes.learnt({"h1"})
        assert right(nodes.gateway) and nodes.holder() is nodes.hosts[0]
        nodes.learnt(away)
        nodes.drain(nodes.hosts[0])
        assert right(nodes.gateway)
        for host in nodes.hosts[1:]:
            part = int(host.await_line(r"fetched model=adder bytes=(\d+) from=h1 "))
            assert 0 < part < 0.75 * len(WEIGHTS)


def test_a_host_whose_bytes_are_wrong_is_not_asked_again(tmp_path):
    with fake.Hub(ADDER) as hub, Apart(tmp_path, hub, hosts=2) as nodes:
        nodes.learnt({"h1", "h2"})
        assert right(nodes.gateway)
        first = nodes.holder()
        second = next(host for host in nodes.hosts if host is not first)
        blobs = (tmp_path / first.name).rglob("blobs/*")
        weights = next(path for path in blobs if path.stat().st_size == len(WEIGHTS))
        with weights.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(bytes([WEIGHTS[-1] ^ 0xFF]))
        sent = weights_sent(hub)
        nodes.drain(first)
        nodes.gateway.call("/models/load", {"model": "adder"})
        second.await_line("came with the SHA-256")
        wait_until(lambda: nodes.gateway.call("/models/load", {"model": "adder"})[0] == 200)
        assert right(nodes.gateway)
        assert weights_sent(hub) - sent >= 0.7 * len(WEIGHTS)
