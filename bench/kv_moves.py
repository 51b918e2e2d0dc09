#!/usr/bin/env python3
"""What a drained host costs those who are answered there: the drain, the longest pause, the tokens computed again.

    tools/random_model.py /tmp/model --size 40m && bench/kv_moves.py /tmp/model [--streams 4] [--prompt 1000]

Two hosts on loopback with the model in their files. Streams run on one, which is drained in the middle. With `follow`
requests go on at the other host with their KV, as always; with `stay` no prefixes are cached, so that the host waits
for the end of their answers. Of each: how long the drain takes, how long until the last answer has ended, the median
time between tokens, the longest pause of any stream, and the tokens whose KV moved and that were computed again.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/integration"), str(ROOT / "tests/fetch")]
import cluster  # noqa: E402
import server as heddle  # noqa: E402
from test_cluster import Stream  # noqa: E402
from test_fetch import wait_until  # noqa: E402


class Hosts(cluster.Cluster):
    def __init__(self, model, stay):
        extra = ", prefix_cache: off" if stay else ""
        super().__init__(hosts=2, models=[f"  m: {{path: {model}}}\n"], memory="1GiB", device_extra=extra)

    def text(self):
        return super().text().replace("memory: 64MiB", "memory: 512MiB").replace("page: 64KiB", "page: 2MiB")


def holders(gateway):
    return [d["name"].partition("/")[0] for d in gateway.call("/api/devices")[2]["devices"] if d["models"]]


def play(arguments, stay):
    with Hosts(arguments.model, stay) as nodes:
        gateway = nodes.gateways[0]
        wait_until(lambda: gateway.call("/v1/models")[2]["data"])
        wait_until(lambda: all(d["up"] for d in gateway.call("/api/devices")[2]["devices"]))
        streams = [
            Stream(gateway, "m", [1 + (i * 7 + s) % 200 for i in range(arguments.prompt)], arguments.tokens)
            for s in range(arguments.streams)
        ]
        wait_until(lambda: all(len(s.pieces) > 20 for s in streams), 120)
        began = time.monotonic()
        subprocess.run(
            [heddle.BINARY, "drain", holders(gateway)[0], "--url", gateway.url], check=True, capture_output=True
        )
        drained = time.monotonic() - began
        for stream in streams:
            stream.text()
        gaps = [[b - a for a, b in zip(s.times, s.times[1:])] for s in streams]
        counted = gateway.metrics()
        return {
            "drain": drained,
            "ends": time.monotonic() - began,
            "median": statistics.median(gap for own in gaps for gap in own),
            "pause": max(gap for own in gaps for gap in own[20:]),
            "moved": counted.get('heddle_kv_moved_tokens_total{model_name="m"}', 0),
            "again": counted.get('heddle_kv_computed_again_tokens_total{model_name="m"}', 0),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=1000, help="tokens")
    parser.add_argument("--tokens", type=int, default=600, help="of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print("          drain     ends    median    pause   moved   again")
    for stay in (False, True):
        rounds = [play(arguments, stay) for _ in range(arguments.rounds)]
        of = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        print(
            f"{'stay' if stay else 'follow':6} {of['drain']:7.2f}s {of['ends']:7.2f}s {1000 * of['median']:7.1f}ms"
            f" {1000 * of['pause']:6.0f}ms {of['moved']:7.0f} {of['again']:7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
