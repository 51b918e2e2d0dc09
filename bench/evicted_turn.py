#!/usr/bin/env python3
"""What KV in host memory saves: time to the first token of a conversation's next turn, after its model was evicted.

    tools/random_model.py /tmp/100m --size 100m
    bench/evicted_turn.py /tmp/100m [--tokens 1024,4096] [--rounds 5] [--memory 288MiB] [--kv 256MiB]

Two servers, with `host.kv` and without, take turns. On each two names of the model share a device that has room for
one. A turn of N tokens is answered with 16; the other name is asked, so that the first has to leave; then the
conversation goes on with 16 tokens more, which loads its model first. Medians over the rounds, each with a conversation
of its own. The answers have to be the same.
"""

import argparse
import pathlib
import random
import statistics

import second_turn
import server as heddle


class Server(second_turn.Server):
    def __init__(self, options, kv):
        heddle.BINARY = options.binary
        path = options.model.resolve()
        heddle.Server.__init__(
            self,
            f"listen: 127.0.0.1:0\nhost: {{memory: {options.host}, kv: {kv}}}\nlogLevel: error\n"
            f"devices: [{{name: cpu0, memory: {options.memory}}}]\nplanner: {{prewarm: false}}\n"
            f"models: {{m: {{path: {path}}}, other: {{path: {path}}}}}\n",
        )

    def resident(self):
        return [one["model"] for one in self.call("/api/devices")[2]["devices"][0]["models"]]

    def evict(self):
        self.call("/v1/completions", {"model": "other", "prompt": " 1 2 3", "max_tokens": 1})
        if self.resident() != ["other"]:
            raise SystemExit(f"there are {self.resident()}: --memory has room for both")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--tokens", default="1024,4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="288MiB", help="of the device: room for one model and its KV")
    parser.add_argument("--host", default="1GiB", help="for images")
    parser.add_argument("--kv", default="256MiB", help="for KV of models that left")
    parser.add_argument("--binary", default="build/release/heddle")
    options = parser.parse_args()
    servers = {"with": Server(options, options.kv), "without": Server(options, "0")}
    rng = random.Random(1)
    for server in servers.values():
        server.first_token(second_turn.words(rng, 8))
        server.evict()  # Both images are in host memory from here on.
    print("| turn before | computed again | brought back | of it | cached tokens |\n| --- | --- | --- | --- | --- |")
    for tokens in map(int, options.tokens.split(",")):
        times, cached, answers = {name: [] for name in servers}, 0, {}
        for _ in range(options.rounds):
            turn, more = second_turn.words(rng, tokens), second_turn.words(rng, 16)
            for name, server in servers.items():
                _, said, _ = server.first_token(turn)
                server.evict()
                seconds, answers[name], found = server.first_token(turn + said + more)
                times[name].append(seconds)
                cached = max(cached, found)
            if answers["with"] != answers["without"]:
                raise SystemExit("the answers differ")
        with_, without = (statistics.median(times[name]) for name in ("with", "without"))
        print(f"| {tokens} | {1e3 * without:.1f} ms | {1e3 * with_:.1f} ms | {with_ / without:.3f} | {cached} |")
    for server in servers.values():
        server.stop()


if __name__ == "__main__":
    main()
