#!/usr/bin/env python3
"""What it costs to have a part of a model's experts in a device's memory: tokens a second, and the memory that it saves.

    tools/random_model.py /tmp/mixture --size 600m-a100m
    bench/experts.py /tmp/mixture [--shares 1,0.75,0.5,0.25] [--tokens 64] [--rounds 5] [--streams 1] [--binary B]

One server has the model once for each share, and asks them by turns. A round is a prompt of its own of 16 tokens, which
every share answers with as many tokens as --tokens says, drawn at temperature 1 with the round's seed; with --streams
so many at once. Rates are of the tokens after the first: the median of the rounds, and the fastest, which other work on
the machine disturbed least. The first round fills the slots and does not count. The answers have to be the same.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import statistics
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/integration"))
import server as heddle  # noqa: E402


def answer(server, model, prompt, tokens, seed):
    """(seconds from the first token to the last, the text)."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 1, "seed": seed}
    body |= {"ignore_eos": True, "stream": True}
    request = urllib.request.Request(
        server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    first, last, text = None, None, ""
    with opener.open(request, timeout=600) as response:
        for line in response:
            if line.startswith(b"data: {"):
                last = time.perf_counter()
                first = first or last
                text += "".join(choice["text"] for choice in json.loads(line[6:])["choices"])
    return last - first, text


def counts(server, model):
    """(pages of weights, hits, misses, bytes fetched)."""
    device = server.call("/api/devices")[2]["devices"][0]
    pages = next(each["weights_pages"] for each in device["models"] if each["model"] == model)
    told = next((each for each in device["experts"] if each["model"] == model), None) or {}
    return pages * device["page_bytes"], *(told.get(key, 0) for key in ("hits", "misses", "fetched_bytes"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--shares", default="1,0.75,0.5,0.25")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--memory", default="5GiB", help="of the device")
    parser.add_argument("--host", default="6GiB", help="for images")
    parser.add_argument("--binary", default="build/release/heddle")
    options = parser.parse_args()
    heddle.BINARY = pathlib.Path(options.binary).resolve()
    shares = options.shares.split(",")
    rows = "".join(
        f"  m{share}: {{path: {options.model.resolve()}, pin: true, experts: {{resident: {share}}}}}\n"
        for share in shares
    )
    rng = random.Random(1)
    rates, before, tokens = {share: [] for share in shares}, {}, 0
    with heddle.Server(
        f"listen: 127.0.0.1:0\nlogLevel: error\nhost: {{memory: {options.host}, kv: 0}}\n"
        f"devices: [{{name: cpu0, memory: {options.memory}}}]\nmodels:\n{rows}"
    ) as server:
        for turn in range(options.rounds + 1):
            prompts = ["".join(f" {rng.randrange(1000)}" for _ in range(16)) for _ in range(options.streams)]
            said = {}
            for share in shares:
                model = f"m{share}"
                if turn == 1:
                    before[share] = counts(server, model)
                with concurrent.futures.ThreadPoolExecutor(options.streams) as threads:
                    asked = [threads.submit(answer, server, model, p, options.tokens, turn) for p in prompts]
                    told = [one.result() for one in asked]
                said[share] = [text for _, text in told]
                if turn > 0:
                    rates[share].append(options.streams * (options.tokens - 1) / max(s for s, _ in told))
            if any(each != said[shares[0]] for each in said.values()):
                raise SystemExit("the answers differ")
            tokens += options.streams * options.tokens if turn > 0 else 0
        print("| resident | weights | found there | fetched a token | tokens/s | fastest | of the first |\n" + "| --- " * 7 + "|")
        whole = max(rates[shares[0]])
        for share in shares:
            pages, hits, misses, fetched = counts(server, f"m{share}")
            hits, misses, fetched = hits - before[share][1], misses - before[share][2], fetched - before[share][3]
            there = f"{100 * hits / (hits + misses):.1f} %" if hits + misses else "all"
            middle, fastest = statistics.median(rates[share]), max(rates[share])
            print(
                f"| {share} | {pages / 2**20:.0f} MiB | {there} | {fetched / tokens / 2**20:.1f} MiB "
                f"| {middle:.1f} | {fastest:.1f} | {fastest / whole:.2f} |"
            )


if __name__ == "__main__":
    main()
