#!/usr/bin/env python3
"""First tokens of a model that no host has, fetched by one host or by several together, and the way back to one device.

    tools/random_model.py /tmp/model --size 40m && bench/cold_starts.py /tmp/model [--hosts 1 2 4] [--stay] [--burst 32]

A cluster for each run, of agents with a cache of their own and `nic: 10MB/s`, and a hub that is not held back: on
loopback, or with --shaped in network namespaces whose links have a tenth more. For
each number of hosts, medians of the rounds: what the fetch alone takes (M/(sb), with the bytes of the file), the first
token of a streamed request, that of a warm one, the most that a host fetched before it, in parts of M; medians of the
time between tokens in the stages and of the last 300, the longest around the move and of all; the 99th percentiles
of it while a host of the stages fetches the whole model, and after that; the tokens whose KV moved; after how long a
host has all of it; and the whole answer. With --stay no prefixes are cached, so that the answer ends in the stages.

With --burst, so many requests come at once, on as many hosts as the largest number of --hosts: the mean of their first
tokens and of their ends where one host starts, where several start apart, and where they start together.
"""

import argparse
import contextlib
import pathlib
import re
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/integration"), str(ROOT / "tests/fetch")]
import cluster  # noqa: E402
import hub as fake  # noqa: E402
import machines  # noqa: E402
from fetching import environment  # noqa: E402
from test_cluster import Stream  # noqa: E402
from test_fetch import wait_until  # noqa: E402

RATE = 10_000_000  # Of a host's network [bytes/s].
NAME = "acme/adder"


class Slow:
    """Hosts with caches of their own and slow networks. What a cluster is started with."""

    def __init__(self, hosts, models, replicas=True, stay=False):
        self.planner = f"planner: {{replicas: {str(replicas).lower()}}}\n"
        extra = ", prefix_cache: off" if stay else ""
        super().__init__(hosts=hosts, gateways=1, managers=1, models=models, memory="512MiB", device_extra=extra)

    def reach(self, hub, home):
        """Where models come from, and where caches are. To be told before it begins."""
        for node in self.nodes():
            node.env = environment(home / node.name, HF_ENDPOINT=hub.url)

    def text(self):
        text = super().text().replace("memory: 64MiB", f"memory: 512MiB, nic: {RATE // 1_000_000}MB/s")
        return self.planner + text.replace("page: 64KiB", "page: 2MiB")

    def __enter__(self):
        super().__enter__()
        for host in self.hosts:
            host.await_line("a source has said what its model is", len(self.models))
        wait_until(lambda: len(self.gateways[0].call("/v1/models")[2]["data"]) == len(self.models))
        return self


class Loopback(Slow, cluster.Cluster):
    """On loopback: heddle holds its fetches back itself."""


class Shaped(Slow, machines.Machines):
    """Each process in a network namespace, whose links the kernel shapes. They have a tenth more than fetches may take."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        for host in self.hosts:
            self.network.shape(host.name, RATE * 10 // 9)

    def registry(self):
        return ""


def row(most):
    return [f"  model: {{path: {NAME}, slo: {{ttft: 100ms}}, cold_start_hosts: {most}, min_residence: 0s}}\n"]


@contextlib.contextmanager
def started(files, shaped, *arguments):
    """A cluster, and a hub that is not held back."""
    with tempfile.TemporaryDirectory(prefix="heddle-cold-") as folder, contextlib.ExitStack() as stack:
        nodes = (Shaped if shaped else Loopback)(*arguments)
        where = "127.0.0.1"
        if shaped:
            stack.enter_context(nodes.network.inside("client"))
            where = nodes.network.address("client")
        nodes.reach(stack.enter_context(fake.Hub(files, address=where)), pathlib.Path(folder))
        yield stack.enter_context(nodes)


def first_token(gateway, tokens):
    began = time.monotonic()
    stream = Stream(gateway, "model", "1+2=", tokens)
    wait_until(lambda: stream.times or stream.error, 120)
    assert stream.error is None, stream.error
    return stream, stream.times[0] - began


MOVED = re.compile(r"KV of (\d+) tokens has come")


def moves(gateway):
    """Tokens of each request that went on in the whole model."""
    return [int(tokens) for one in gateway.call("/api/decisions")[2]["decisions"] for tokens in MOVED.findall(one["why"])]


def gaps_of(stream, moved_at):
    """Between tokens: in the stages, around the move, and all."""
    gaps = [(after, after - before) for before, after in zip(stream.times, stream.times[1:])]
    every = [gap for _, gap in gaps]
    if moved_at is None:
        return every, [0.0], every
    return ([gap for at, gap in gaps if at < moved_at - 1],
            [gap for at, gap in gaps if moved_at - 1 <= at <= moved_at + 0.1], every)


def late_of(stream, begin, end):
    """The 99th percentile between tokens that came in that time; 0 where few did."""
    gaps = [after - before for before, after in zip(stream.times, stream.times[1:]) if begin < after < end]
    return statistics.quantiles(gaps, n=100)[-1] if len(gaps) > 50 else 0.0


def play(weights, files, shaped, hosts, stay):
    """One start: what it took, in words of the docstring."""
    with started(files, shaped, hosts, row(hosts), True, stay) as nodes:
        gateway = nodes.gateways[0]
        stream, cold = first_token(gateway, 1600)
        fetched = [sum(map(int, re.findall(r"fetched model=model bytes=(\d+)", host.log()))) for host in nodes.hosts]
        began, gathered, moved_at, moved = time.monotonic(), 0.0, None, 0
        if hosts > 1:
            wait_until(lambda: any(host.log().count("fetched model=model") > 1 for host in nodes.hosts), 120)
            gathered = time.monotonic() - began
        if hosts > 1 and not stay:
            moved, moved_at = wait_until(lambda: moves(gateway), 120)[0], time.monotonic()
        stream.text()
        before, around, every = gaps_of(stream, moved_at)
        late = [late_of(stream, began, began + gathered), late_of(stream, began + gathered, stream.times[-1])]
        if hosts > 1:
            wait_until(lambda: sum(bool(d["models"]) for d in gateway.call("/api/devices")[2]["devices"]) == 1, 120)
        _, warm = first_token(gateway, 2)
    return {"fetch": weights / hosts / RATE, "cold": cold, "warm": warm, "share": max(fetched) * hosts / weights,
            "all": sum(fetched) / weights, "token": statistics.median(before or [0]), "after": statistics.median(every[-300:]),
            "move": max(around, default=0), "gap": max(every), "moved": moved, "whole": gathered,
            "beside": late[0], "quiet": late[1],
            "answer": stream.times[-1] - stream.times[0] + cold}


def play_burst(files, shaped, hosts, most, replicas, count):
    """So many requests at once: the mean first token, the mean end, and how many devices have the model then."""
    with started(files, shaped, hosts, row(most), replicas) as nodes:
        gateway = nodes.gateways[0]
        began = time.monotonic()
        streams = [Stream(gateway, "model", f"{i}+2=", 100) for i in range(count)]
        ends = []
        for stream in streams:
            stream.text()
            assert stream.error is None, stream.error
            ends.append(stream.times[-1] - began)
        devices = sum(bool(d["models"]) for d in gateway.call("/api/devices")[2]["devices"])
    first = statistics.mean(stream.times[0] - began for stream in streams)
    return {"first": first, "end": statistics.mean(ends), "devices": devices}


def bursts(files, shaped, hosts, count, rounds):
    print(f"{count} requests at once, {hosts} hosts: means\nstart       first token     end  devices then")
    for name, most, replicas in (("one", 1, False), ("apart", 1, True), ("together", hosts, True)):
        rows = [play_burst(files, shaped, hosts, most, replicas, count) for _ in range(rounds)]
        row = {key: statistics.median(one[key] for one in rows) for key in rows[0]}
        print(f"{name:10} {row['first']:11.2f}s {row['end']:7.2f}s {row['devices']:8}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shaped", action="store_true", help="in network namespaces, whose links the kernel shapes")
    parser.add_argument("--stay", action="store_true", help="answers end in the stages")
    parser.add_argument("--burst", type=int, help="requests at once")
    arguments = parser.parse_args()
    files = fake.files_of(arguments.model)
    weights = sum(len(content) for name, content in files.items() if name.endswith(".safetensors"))
    print(f"{weights / 1e6:.1f} MB, {RATE / 1e6:.0f} MB/s a host, {arguments.rounds} rounds", flush=True)
    if arguments.burst:
        bursts(files, arguments.shaped, max(arguments.hosts), arguments.burst, arguments.rounds)
        return
    print("hosts  M/(sb)   cold   warm  of M/s  of M  token  after   move    gap  beside  quiet  moved  whole after  answer")
    for hosts in arguments.hosts:
        rows = [play(weights, files, arguments.shaped, hosts, arguments.stay) for _ in range(arguments.rounds)]
        row = {key: statistics.median(one[key] for one in rows) for key in rows[0]}
        print(f"{hosts:5} {row['fetch']:7.2f} {row['cold']:6.2f} {row['warm']:6.3f} {row['share']:7.2f} {row['all']:5.2f} "
              f"{row['token'] * 1e3:4.1f}ms {row['after'] * 1e3:4.1f}ms {row['move'] * 1e3:4.0f}ms {row['gap'] * 1e3:4.0f}ms "
              f"{row['beside'] * 1e3:5.0f}ms {row['quiet'] * 1e3:4.0f}ms "
              f"{row['moved']:6.0f} {row['whole']:12.2f} {row['answer']:7.2f}", flush=True)


if __name__ == "__main__":
    main()
