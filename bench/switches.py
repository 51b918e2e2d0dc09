#!/usr/bin/env python3
"""Measures switches between two models that do not fit together, with `heddle serve` as it is.

    bench/switches.py DIR DIR [--turns N] [--restarts N] [--memory SIZE] [--host SIZE] [--binary FILE]

Both are loaded once; then they are asked for in turn (`again`: each was there before), and after every
kill of the worker once each (`first`: the image is in host memory, nothing of it is mapped yet). Of each
request: load_ms and prefill_ms of /api/requests, and the time to the whole answer of one token.
"""

import argparse
import os
import pathlib
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "integration"))
import server as heddle

REST = 0.3  # Between two requests [s]: for what is done behind them.


def ask(server, model):
    began = time.monotonic()
    server.chat(model, "1 2 3", max_tokens=1)
    took = (time.monotonic() - began) * 1e3
    phases = server.call("/api/requests")[2]["requests"][0]["parts"][0]["phases"]
    time.sleep(REST)
    return {"load_ms": phases["load_ms"], "prefill_ms": phases["prefill_ms"], "answer_ms": took}


def restart_worker(server):
    old = server.workers()
    os.kill(old[0], signal.SIGKILL)
    while not server.workers() or server.workers() == old:
        time.sleep(0.05)
    time.sleep(2)


def show(name, requests):
    for what in ["load_ms", "prefill_ms", "answer_ms"] if requests else []:
        values = sorted(each[what] for each in requests)
        late = values[min(len(values) - 1, int(0.95 * len(values)))]
        print(f"{name:6} {what:11} median {statistics.median(values):7.1f}  p95 {late:7.1f}  n {len(values)}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], epilog=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs=2, type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--memory", default="2400MiB", help="of the device: room for one")
    parser.add_argument("--host", default="4500MiB", help="of the host cache: room for both")
    parser.add_argument("--binary", type=pathlib.Path, default=heddle.BINARY)
    options = parser.parse_args()
    heddle.BINARY = options.binary
    heddle.START_SECONDS = 600
    names = ["a", "b"]
    rows = "".join(f"  {name}: {{path: {path.resolve()}}}\n" for name, path in zip(names, options.models))
    config = (
        f"listen: 127.0.0.1:0\nhost: {{memory: {options.host}}}\n"
        f"devices:\n  - {{name: cpu0, kind: cpu, memory: {options.memory}, page: 2MiB}}\nmodels:\n{rows}"
    )
    with heddle.Server(config) as server:
        for name in names:
            ask(server, name)
        show("again", [ask(server, names[turn % 2]) for turn in range(options.turns)])
        first = []
        for _ in range(options.restarts):
            restart_worker(server)
            first += [ask(server, name) for name in names]
        show("first", first)
        for line in server.log().splitlines():
            if "arena made" in line or "huge pages" in line:
                print(line)


if __name__ == "__main__":
    main()
