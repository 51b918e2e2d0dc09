#!/usr/bin/env python3
"""What swapping external engines costs: llama.cpp suspended and resumed instead of started anew, and two
engines that do not fit together under requests that alternate.

    bench/engine_swap.py MODEL.gguf [--rounds 5] [--rate 10] [--tokens 8] [--seconds 60]
                         [--modules build/llama/node_modules] [--binary build/release/heddle]

First two llama.cpp engines take turns on a device that only counts, once for each way of suspending them: by a full stop,
frozen with all their memory, and frozen with the pages of their file given back. The time to the first token of a
request whose engine has to come in, less that of one whose engine runs, is what bringing it in takes; medians, the
first round apart. Then requests for both come at random, so many a second, and each engine is suspended by `reclaim`.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/integration"))
import engines  # noqa: E402
import server as heddle  # noqa: E402

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def serve(gguf, suspend, memory):
    """Two engines on a device on which only one may be at a time."""
    rows = "".join(
        f"  {name}:\n    cmd: {engines.llama(gguf)}\n    engine: llama-server\n    memory: {memory}MiB\n"
        f"    suspend: [{suspend}]\n    device: engines\n"
        for name in ("one", "other")
    )
    # Two do not fit, but one and what the other keeps when its file's pages are gone. Freezing frees nothing, so that
    # there has to be room for both.
    room = "64GiB" if suspend.startswith("freeze") else f"{memory * 17 // 10}MiB"
    groups = "groups: {all: {swap: true, members: [one, other]}}\n" if suspend.startswith("freeze") else ""
    return heddle.Server(
        f"listen: 127.0.0.1:0\nlogLevel: error\ndevices:\n  - {{name: engines, kind: external, memory: {room}}}\n"
        f"models:\n{rows}{groups}"
    )


def first_token(url, model):
    """Seconds to the first byte of a streamed answer."""
    body = {"model": model, "prompt": "12+34=", "max_tokens": 4, "temperature": 0, "stream": True}
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    began, first = time.perf_counter(), None
    try:
        response = OPENER.open(request, timeout=600)
    except urllib.error.HTTPError as error:
        sys.exit(f"{model}: {error.read().decode()}")
    with response:
        for line in response:
            if line.startswith(b"data: {"):
                assert b'"error"' not in line, line
                first = first or time.perf_counter() - began
    return first


def get(url):
    with OPENER.open(url, timeout=60) as response:
        return response.read().decode()


def turns(gguf, suspend, memory, rounds):
    """(seconds that a first token takes longer when its engine has to come in, what the engines say of themselves)."""
    with serve(gguf, suspend, memory) as server:
        coming = []
        for number in range(rounds + 1):
            for model in ("one", "other"):
                cold = first_token(server.url, model)
                warm = min(first_token(server.url, model) for _ in range(3))
                if number > 0:
                    coming.append(cold - warm)
                time.sleep(0.1)
        return statistics.median(coming), json.loads(get(server.url + "/api/engines"))["engines"]


def cost(engine, level):
    return next(one for one in engine["costs"] if one["level"] == level)


def alternate(gguf, memory, rate, tokens, seconds):
    with serve(gguf, "reclaim, stop", memory) as server:
        for model in ("one", "other", "one", "other"):
            first_token(server.url, model)
        out = subprocess.run(
            [heddle.BINARY, "bench", "--url", server.url + "/v1", "--api", "completions", "-m", "one", "other",
             "-r", str(rate), "-d", f"{seconds}s", "-i", "8", "-o", str(tokens), "--json", "-"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        result = json.loads(out.stdout)
        spent = dict(re.findall(r'heddle_device_time_seconds\{.*state="(\w+)".*\} (\S+)', get(server.url + "/metrics")))
        found = json.loads(get(server.url + "/api/engines"))["engines"]
    swap = max(cost(engine, "reclaim")["in_ms"] + cost(engine, "reclaim")["out_ms"] for engine in found)
    swaps = sum(cost(engine, "reclaim")["times"] for engine in found)
    return result, spent, swap, swaps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--tokens", type=int, default=8, help="of each answer")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--modules", type=pathlib.Path, default=engines.MODULES)
    parser.add_argument("--binary", type=pathlib.Path, default=heddle.BINARY)
    options = parser.parse_args()
    engines.MODULES, heddle.BINARY = options.modules.resolve(), options.binary.resolve()
    gguf = options.gguf.resolve()
    memory = gguf.stat().st_size * 5 // 4 // 2**20 + 300

    measured = {}
    for suspend in ("stop", "freeze, stop", "reclaim, stop"):
        seconds, found = turns(gguf, suspend, memory, options.rounds)
        level = suspend.split(",")[0]
        measured[level] = seconds
        held = [cost(engine, level)["held_bytes"] / 2**20 for engine in found]
        out = statistics.median(cost(engine, level)["out_ms"] for engine in found)
        print(
            f"{level:8} coming in {1e3 * seconds:8.1f} ms ({measured['stop'] / seconds:6.1f} times faster than a start); "
            f"going out {out:7.1f} ms; then holds {max(held):.0f} MiB",
            flush=True,
        )

    result, spent, swap, swaps = alternate(gguf, memory, options.rate, options.tokens, options.seconds)
    total = result["all"]
    serving, switching = float(spent["serving"]), float(spent["switching"])
    # A request waits at most until its turn comes (2 s, or the other's stay of three times its coming in), until the
    # other's requests have ended or stand still (2 s), and for the switch.
    bound = max(2.0, 3e-3 * swap) + 2.0 + 1e-3 * swap
    print(
        f"{options.rate}/s for {options.seconds} s: {total['requests']} requests, {total['failed']} failed; first token "
        f"P50 {total['ttft']['p50']:.2f} s, P99 {total['ttft']['p99']:.2f} s, bound {bound:.1f} s; {swaps} swaps, "
        f"serving {serving / (serving + switching):.0%} of the time"
    )


if __name__ == "__main__":
    main()
