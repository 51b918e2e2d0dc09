#!/usr/bin/env python3
"""What the prefix cache saves a model with linear attention: time to the first token of each turn of a chat.

    tools/random_model.py /tmp/hybrid --size 100m-hybrid
    bench/hybrid_turns.py /tmp/hybrid [--turns 6] [--tokens 256] [--rounds 5] [--memory 1GiB]
                          [--binary build/release/heddle]

Two servers, with and without, take turns. Each turn of N tokens is answered with 16, and the next one repeats all that
was said before it. Medians over the rounds, each with a chat of its own. The answers have to be the same.
"""

import argparse
import pathlib
import random
import statistics

from second_turn import Server, words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=256, help="of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="1GiB", help="of the device")
    parser.add_argument("--binary", default="build/release/heddle")
    options = parser.parse_args()
    shares = {"with": "100%", "without": "off"}
    servers = {name: Server(options.binary, options.model, options.memory, share) for name, share in shares.items()}
    rng = random.Random(1)
    for server in servers.values():
        server.first_token(words(rng, 8))  # Loads the model.
    times = {name: [[] for _ in range(options.turns)] for name in servers}
    cached = [0] * options.turns
    for _ in range(options.rounds):
        chat = ""
        for turn in range(options.turns):
            chat += words(rng, options.tokens)
            said = {}
            for name, server in servers.items():
                seconds, said[name], found = server.first_token(chat)
                times[name][turn].append(seconds)
                cached[turn] = max(cached[turn], found)
            if said["with"] != said["without"]:
                raise SystemExit("the answers differ")
            chat += said["with"]
    print("| turn | prompt | without | with | of it | cached tokens |\n| --- | --- | --- | --- | --- | --- |")
    for turn in range(options.turns):
        prompt = (turn + 1) * options.tokens + 16 * turn
        with_, without = (statistics.median(times[name][turn]) for name in ("with", "without"))
        row = f"{1e3 * without:.1f} ms | {1e3 * with_:.1f} ms | {with_ / without:.3f} | {cached[turn]}"
        print(f"| {turn + 1} | {prompt} tokens | {row} |")
    for server in servers.values():
        server.stop()


if __name__ == "__main__":
    main()
