#!/usr/bin/env python3
"""First tokens of a model that no host has, fetched by one host or by several together, and the way back to one device.

    tools/random_model.py /tmp/model --size 40m && bench/cold_starts.py /tmp/model [--hosts 1 2 4] [--stay]

A cluster over loopback for each run: agents with a cache of their own and `nic: 10MB/s`, a hub that is not held back. For
each number of hosts, medians of the rounds: what the fetch alone takes (M/(sb), with the bytes of the file), the first
token of a streamed request, that of a warm one, the most that a host fetched before it, in parts of M; medians of the
time between tokens in the stages and in the whole model, the longest around the move and of all; the tokens whose KV
moved; after how long a host has all of it; and the whole answer. With --stay no prefixes are cached, so that the answer
ends in the stages.
"""

import argparse
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
from fetching import environment  # noqa: E402
from test_cluster import Stream  # noqa: E402
from test_fetch import wait_until  # noqa: E402

RATE = 10_000_000  # Of a host's network [bytes/s].
NAME = "acme/adder"


class Apart(cluster.Cluster):
    """Hosts with caches of their own and a slow network."""

    def __init__(self, home, hub, hosts, most, stay):
        row = f"  model: {{path: {NAME}, slo: {{ttft: 100ms}}, cold_start_hosts: {most}, min_residence: 0s}}\n"
        super().__init__(hosts=hosts, models=[row], memory="512MiB", device_extra=", prefix_cache: off" if stay else "")
        for node in self.nodes():
            node.env = environment(home / node.name, HF_ENDPOINT=hub.url)

    def text(self):
        return super().text().replace("memory: 64MiB", "memory: 512MiB, nic: 10MB/s").replace("page: 64KiB", "page: 2MiB")

    def __enter__(self):
        super().__enter__()
        for host in self.hosts:
            host.await_line("a source has said what its model is")
        wait_until(lambda: self.gateways[0].call("/v1/models")[2]["data"])
        return self


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


def play(weights, files, hosts, stay):
    """One start: what it took, in words of the docstring."""
    with tempfile.TemporaryDirectory(prefix="heddle-cold-") as folder, fake.Hub(files) as hub:
        with Apart(pathlib.Path(folder), hub, hosts, max(hosts, 1), stay) as nodes:
            gateway = nodes.gateways[0]
            stream, cold = first_token(gateway, 40 if hosts == 1 else 800)
            fetched = [sum(map(int, re.findall(r"fetched model=model bytes=(\d+)", host.log()))) for host in nodes.hosts]
            began, gathered, moved_at, moved = time.monotonic(), 0.0, None, 0
            if hosts > 1:
                wait_until(lambda: any(host.log().count("fetched model=model") > 1 for host in nodes.hosts), 120)
                gathered = time.monotonic() - began
            if hosts > 1 and not stay:
                moved = wait_until(lambda: moves(gateway), 120)[0]
                moved_at = time.monotonic()
            stream.text()
            gaps = [(after, after - before) for before, after in zip(stream.times, stream.times[1:])]
            first = [gap for at, gap in gaps if moved_at is None or at < moved_at - 1]
            last = [gap for at, gap in gaps if moved_at is not None and at > moved_at] or first
            around = [gap for at, gap in gaps if moved_at is not None and moved_at - 1 <= at <= moved_at + 0.1]
            if hosts > 1:
                wait_until(lambda: sum(bool(d["models"]) for d in gateway.call("/api/devices")[2]["devices"]) == 1, 120)
            _, warm = first_token(gateway, 2)
    return {"fetch": weights / hosts / RATE, "cold": cold, "warm": warm, "share": max(fetched) * hosts / weights,
            "all": sum(fetched) / weights, "gap": max(gap for _, gap in gaps), "token": statistics.median(first or [0]), "after": statistics.median(last),
            "move": max(around, default=0), "moved": moved, "whole": gathered,
            "answer": stream.times[-1] - stream.times[0] + cold}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stay", action="store_true")
    arguments = parser.parse_args()
    files = fake.files_of(arguments.model)
    weights = sum(len(content) for name, content in files.items() if name.endswith(".safetensors"))
    print(f"{weights / 1e6:.1f} MB, {RATE / 1e6:.0f} MB/s a host, {arguments.rounds} rounds", flush=True)
    print("hosts  M/(sb)   cold   warm  of M/s  of M  token  after   move    gap  moved  whole after  answer")
    for hosts in arguments.hosts:
        rows = [play(weights, files, hosts, arguments.stay) for _ in range(arguments.rounds)]
        row = {key: statistics.median(one[key] for one in rows) for key in rows[0]}
        print(f"{hosts:5} {row['fetch']:7.2f} {row['cold']:6.2f} {row['warm']:6.3f} {row['share']:7.2f} {row['all']:5.2f} "
              f"{row['token'] * 1e3:4.1f}ms {row['after'] * 1e3:4.1f}ms {row['move'] * 1e3:4.0f}ms {row['gap'] * 1e3:4.0f}ms "
              f"{row['moved']:6.0f} {row['whole']:12.2f} {row['answer']:7.2f}", flush=True)


if __name__ == "__main__":
    main()
