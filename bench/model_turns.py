#!/usr/bin/env python3
"""What turns are worth, and KV in host memory to them: models with long answers on a device that holds two of them.

    bench/model_turns.py [--models 7] [--seconds 60] [--prompt 300] [--answer 120] [--turn 1s]

The demo models, some of them by several names, on a paced device: a step takes 20 ms and each token of a prompt one
more, as on a far slower machine. One client a model asks, waits for the answer and asks again. Three servers, one after
the other: busy models are waited for, as they are by default; they take turns (`planner.turn`) and what they had
computed is lost; they take turns and the host keeps it. Of each: time to the first token, tokens a second, and tokens
that were computed again.
"""

import argparse
import json
import pathlib
import random
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/integration"))
import server as heddle  # noqa: E402

VARIANTS = {
    "waited for": {"turn": "0", "kv": "0"},
    "turns, computed again": {"kv": "0"},
    "turns, KV kept": {"kv": "64MiB"},
}


def start(options, turn=None, kv="0"):
    heddle.BINARY = options.binary
    names = heddle.demo_models()
    rows = "".join(
        f"  m{n}: {{path: {heddle.MODELS / names[n % len(names)]}}}\n" for n in range(options.models)
    )
    return heddle.Server(
        f"listen: 127.0.0.1:0\nhost: {{memory: 64MiB, kv: {kv}}}\nlogLevel: error\n"
        f"devices: [{{name: cpu0, memory: {options.memory}, page: 64KiB, pace: {{step: 20ms, token: 1ms}}}}]\n"
        f"planner: {{prewarm: false, drain_after: 500ms, turn: {turn or options.turn}}}\nmodels:\n{rows}"
    )


class Client(threading.Thread):
    def __init__(self, server, model, options):
        super().__init__()
        self.server, self.model, self.options = server, model, options
        self.first, self.tokens, self.failure = [], 0, None
        self.rng = random.Random(model)

    def run(self):
        try:
            while time.monotonic() < self.options.until:
                self.ask()
        except OSError as error:
            self.failure = error

    def ask(self):
        prompt = "".join(self.rng.choice("0123456789+= ") for _ in range(self.options.prompt))
        body = {"model": self.model, "prompt": prompt, "max_tokens": self.options.answer, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        request = urllib.request.Request(
            self.server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        began, waits = time.monotonic(), True
        with opener.open(request, timeout=600) as response:
            for line in response:
                if line.startswith(b"data: {") and waits and json.loads(line[6:])["choices"]:
                    waits = False
                    self.first.append(time.monotonic() - began)
        if waits:
            raise OSError(f"{self.model} gave no token")
        self.tokens += self.options.answer


def percentile(values, part):
    return sorted(values)[min(int(part * len(values)), len(values) - 1)]


def play(options, variant):
    server = start(options, **VARIANTS[variant])
    for n in range(options.models):  # All images are in host memory from here on.
        server.call("/v1/completions", {"model": f"m{n}", "prompt": "1", "max_tokens": 1})
    before = server.metrics()
    began = time.monotonic()
    options.until = began + options.seconds
    clients = [Client(server, f"m{n}", options) for n in range(options.models)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    took = time.monotonic() - began
    after = server.metrics()
    server.stop()
    failed = [client for client in clients if client.failure]
    if failed:
        raise SystemExit(f"{failed[0].model}: {failed[0].failure}")

    def counted(name):
        return sum(v - before.get(k, 0) for k, v in after.items() if k.startswith(name + "{"))

    first = [one for client in clients for one in client.first]
    return {
        "answers": len(first),
        "p50": percentile(first, 0.5),
        "p95": percentile(first, 0.95),
        "rate": sum(client.tokens for client in clients) / took,
        "sought": counted("heddle_prefix_cache_queried_tokens_total"),
        "found": counted("heddle_prefix_cache_hit_tokens_total"),
        "returned": counted("heddle_kv_store_returned_tokens_total"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--prompt", type=int, default=300, help="characters, each a token or nearly so")
    parser.add_argument("--answer", type=int, default=120, help="tokens")
    parser.add_argument("--memory", default="3840KiB")
    parser.add_argument("--turn", default="1s")
    parser.add_argument("--binary", default="build/release/heddle")
    options = parser.parse_args()
    print("| busy models are | answers | first token p50 | p95 | tokens/s | tokens brought back |")
    print("| --- | --- | --- | --- | --- | --- |")
    for variant in VARIANTS:
        got = play(options, variant)
        print(
            f"| {variant} | {got['answers']} | {got['p50']:.2f} s | {got['p95']:.2f} s "
            f"| {got['rate']:.1f} | {got['returned']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
