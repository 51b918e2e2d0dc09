#!/usr/bin/env python3
"""What the prefix cache saves: time to the first token of a conversation's second turn, and time for many
requests at once that share a system prompt.

    tools/random_model.py /tmp/100m --size 100m
    bench/second_turn.py /tmp/100m [--tokens 256,1024] [--rounds 7] [--shared 16] [--memory 1GiB]
                         [--binary build/release/heddle]

Two servers, with and without, take turns. A turn of N tokens is answered with 16; the second turn repeats
both and says 16 tokens more. Medians over the rounds, each with a conversation of its own. Then as many
requests as --shared says, all beginning with the same tokens, are sent at once.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/integration"))
import server as heddle  # noqa: E402


class Server(heddle.Server):
    def __init__(self, binary, model, memory, prefix_cache):
        heddle.BINARY = binary
        super().__init__(
            "listen: 127.0.0.1:0\nhost: {memory: 1GiB}\nlogLevel: error\n"
            f"devices: [{{name: cpu0, memory: {memory}, prefix_cache: {prefix_cache}}}]\n"
            f"models: {{m: {{path: {model.resolve()}, pin: true}}}}\n"
        )

    def first_token(self, prompt):
        """(seconds to the first token, the text, cached tokens) of an answer of 16 tokens."""
        body = {"model": "m", "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        request = urllib.request.Request(
            self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        began, first, text, cached = time.perf_counter(), None, "", 0
        with opener.open(request, timeout=600) as response:
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                first = first or time.perf_counter() - began
                text += "".join(choice["text"] for choice in chunk["choices"])
                if chunk.get("usage"):
                    cached = chunk["usage"]["prompt_tokens_details"]["cached_tokens"]
        return first, text, cached


def words(rng, count):
    return "".join(f" {rng.randrange(1000)}" for _ in range(count))


def shared_prompt(server, prompt, count):
    """Seconds until all of `count` requests that begin with `prompt` are answered."""
    requests = [threading.Thread(target=server.first_token, args=(f"{prompt} {n}",)) for n in range(count)]
    began = time.perf_counter()
    for request in requests:
        request.start()
    for request in requests:
        request.join()
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--tokens", default="256,1024")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shared", type=int, default=16)
    parser.add_argument("--memory", default="1GiB", help="of the device")
    parser.add_argument("--binary", default="build/release/heddle")
    options = parser.parse_args()
    shares = {"with": "100%", "without": "off"}
    servers = {
        name: Server(options.binary, options.model, options.memory, share) for name, share in shares.items()
    }
    rng = random.Random(1)
    for server in servers.values():
        server.first_token(words(rng, 8))  # Loads the model.
    print("| first turn | without | with | of it | cached tokens |\n| --- | --- | --- | --- | --- |")
    for tokens in map(int, options.tokens.split(",")):
        times, cached, answers = {name: [] for name in servers}, 0, {}
        for _ in range(options.rounds):
            turn, more = words(rng, tokens), words(rng, 16)
            for name, server in servers.items():
                _, said, _ = server.first_token(turn)
                seconds, answers[name], found = server.first_token(turn + said + more)
                times[name].append(seconds)
                cached = max(cached, found)
            if answers["with"] != answers["without"]:
                raise SystemExit("the answers differ")
        with_, without = (statistics.median(times[name]) for name in ("with", "without"))
        share = f"{100 * with_ / without:.0f} %"
        print(f"| {tokens} tokens | {1e3 * without:.1f} ms | {1e3 * with_:.1f} ms | {share} | {cached} |")
    print(f"\n| {options.shared} requests at once that begin alike | without | with | of it |\n| --- | --- | --- | --- |")
    for tokens in map(int, options.tokens.split(",")):
        prompt = words(rng, tokens)
        seconds = {name: shared_prompt(server, prompt, options.shared) for name, server in servers.items()}
        share = f"{100 * seconds['with'] / seconds['without']:.0f} %"
        print(f"| {tokens} tokens | {seconds['without']:.1f} s | {seconds['with']:.1f} s | {share} |")
    for server in servers.values():
        server.stop()


if __name__ == "__main__":
    main()
