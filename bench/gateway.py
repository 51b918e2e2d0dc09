#!/usr/bin/env python3
"""What the gateway adds, bears and keeps: four figures of a running server.

    bench/gateway.py [latency] [streams] [idle] [overload] [--binary build/release/heddle]

latency    what a request takes beyond its time on the engine: HTTP, template, tokens, text, scheduling
streams    1,000 answers at once at 20 tokens/s each, the server held to one core: how late tokens are
idle       memory of 10,000 open connections that ask for nothing
overload   goodput at ten times what the engine can do, against goodput at what it can do
"""

import argparse
import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import server as heddle  # noqa: E402

MODEL = "sorter"


class Server(heddle.Server):
    """`heddle serve` with one demo model, for the length of a with-block."""

    def __init__(self, binary, device, limits="", cores=None):
        heddle.BINARY = binary
        super().__init__(
            "listen: 127.0.0.1:0\nhost: {memory: 64MiB}\nlogLevel: error\n"
            f"devices: [{{name: cpu0, {device}}}]\nlimits: {{{limits}}}\n"
            f"models: {{{MODEL}: {{path: {heddle.MODELS / MODEL}, pin: true}}}}\n"
        )
        if cores is not None:  # Its own threads; the worker, which is up by now, has its device's cores.
            for thread in os.listdir(f"/proc/{self.process.pid}/task"):
                os.sched_setaffinity(int(thread), cores)

    def own_resident_bytes(self):
        """Without its worker."""
        return heddle.proportional_bytes(self.process.pid)

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bench(binary, server, *arguments):
    command = [binary, "bench", "--url", server.url, "-m", MODEL, "--ignore-eos", "--json", "-", *map(str, arguments)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def latency(binary):
    """One client, one request after another; the engine's part is from dispatch to the last token."""
    with Server(binary, "kind: cpu, memory: 8MiB, page: 64KiB") as server:
        bench(binary, server, "-c", 1, "-n", 200, "-i", 32, "-o", 1)
        rows = bench(binary, server, "-c", 1, "-n", 200, "-i", 32, "-o", 1)["requests"]
        traces = server.call("/api/requests")[2]["requests"]
    phases = [trace["parts"][0]["phases"] for trace in traces]
    part = statistics.median(phase["prefill_ms"] + phase["decode_ms"] for phase in phases)
    whole = statistics.median(row["ended"] - row["begun"] for row in rows) * 1e3
    return {
        "requests": len(rows),
        "client_ms": round(whole, 3),
        "engine_ms": round(part, 3),
        "added_us": round((whole - part) * 1e3),
    }


def streams(binary):
    """Every stream gets a token each 50 ms; one that comes 50 ms late has missed its deadline."""
    device = "kind: cpu, cores: [1], memory: 512MiB, page: 64KiB, pace: {step: 25ms}"
    with Server(binary, device, "queue: 2000, connections: 4096", cores={0}) as server:
        bench(binary, server, "-c", 8, "-n", 16, "-i", 16, "-o", 8)
        busy = server.processor_seconds()
        began = time.monotonic()
        report = bench(binary, server, "-c", 1000, "-n", 3000, "-i", 16, "-o", 200)["all"]
        share = (server.processor_seconds() - busy) / (time.monotonic() - began)
    itl = report["itl"]
    return {
        "streams": 1000,
        "failed": report["failed"],
        "gap_ms": {key: round(itl[key] * 1e3, 1) for key in ("p50", "p99", "max") if key in itl},
        "server_core_share": round(share, 2),
    }


def idle(binary):
    count = 10_000
    with Server(binary, "kind: cpu, memory: 8MiB, page: 64KiB", f"connections: {count + 100}, idle_timeout: 10m") as server:
        bench(binary, server, "-c", 1, "-n", 4, "-i", 16, "-o", 2)
        before = server.own_resident_bytes()
        parts = urllib.parse.urlsplit(server.url)
        address = parts.hostname, parts.port
        connections = []
        for _ in range(count):
            connections.append(socket.create_connection(address))
        for connection in connections[:: count // 100]:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200"), "a connection is not served"
        time.sleep(1)
        grown = server.own_resident_bytes() - before
        answers = bench(binary, server, "-c", 1, "-n", 4, "-i", 16, "-o", 2)["all"]["failed"]
        for connection in connections:
            connection.close()
    return {"connections": count, "MB": round(grown / 1e6, 1), "failed_beside_them": answers}


def overload(binary):
    """The engine is paced, so that its own speed is the limit and not the generator's core."""
    device = "kind: cpu, memory: 8MiB, page: 64KiB, pace: {step: 20ms, token: 1ms}"
    with Server(binary, device, "queue: 32") as server:
        capacity = goodput(bench(binary, server, "-c", 32, "-d", "15s", "-i", 16, "-o", 16))
        run = bench(binary, server, "-r", round(10 * capacity, 2), "-d", "15s", "-i", 16, "-o", 16)
        kept = goodput(run)
    return {
        "capacity_per_s": round(capacity, 1),
        "goodput_per_s": round(kept, 1),
        "refused": run["all"]["failed"],
        "kept": round(kept / capacity, 3),
    }


def goodput(run):
    """Answers a second, from the first request to the last answer."""
    good = [row for row in run["requests"] if not row.get("error")]
    return len(good) / (max(row["ended"] for row in good) - min(row["begun"] for row in good))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    figures = {"latency": latency, "streams": streams, "idle": idle, "overload": overload}
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(figures))
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/release/heddle")
    options = parser.parse_args()
    if unknown := set(options.figures) - set(figures):
        parser.error(f"no figure {', '.join(sorted(unknown))}; there are {', '.join(figures)}")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for name in options.figures or figures:
        print(json.dumps({name: figures[name](options.binary)}), flush=True)


if __name__ == "__main__":
    main()
