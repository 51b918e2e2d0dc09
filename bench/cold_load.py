#!/usr/bin/env python3
"""Requests for many models that no host has: how many get their first token in time (HydraServe, section 6.3, in small).

    tools/random_model.py /tmp/model --size 40m && bench/cold_load.py /tmp/model [--rate 0.6] [--cv 2 4]

Four hosts on loopback with a cache of their own and `nic: 10MB/s` each, and a web server that is not held back. The models
are equal, and requests draw one of them each. Gaps between requests are drawn from a gamma distribution. The same requests
are played where one host starts a model, and where up to four start it together.
"""

import argparse
import pathlib
import random
import statistics
import tempfile
import time

from cold_starts import Loopback, Stream, fake

HOSTS = 4


def draw(seed, rate, cv, count, models):
    """(seconds from the beginning, model) of each request."""
    drawn, at, shape = random.Random(seed), 0.0, 1 / cv**2
    requests = []
    for _ in range(count):
        at += drawn.gammavariate(shape, 1 / (shape * rate))
        requests.append((at, f"m{drawn.randrange(models)}"))
    return requests


def play(files, requests, models, most, objective):
    """First tokens [s], in order of arrival."""
    copies = {f"m{i}/{name}": content for i in range(models) for name, content in files.items()}
    with tempfile.TemporaryDirectory(prefix="heddle-cold-") as home, fake.Site(copies) as site:
        rows = [
            f"  m{i}: {{path: \"{site.url}/m{i}/\", slo: {{ttft: {objective}s}}, cold_start_hosts: {most}}}\n"
            for i in range(models)
        ]
        nodes = Loopback(HOSTS, rows)
        nodes.reach(site, pathlib.Path(home))
        with nodes:
            began, streams = time.monotonic(), []
            for at, model in requests:
                time.sleep(max(0.0, began + at - time.monotonic()))
                streams.append((time.monotonic(), Stream(nodes.gateways[0], model, "1+2=", 32)))
            for _, stream in streams:
                stream.text()
                assert stream.error is None, stream.error
            return [stream.times[0] - sent for sent, stream in streams]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rate", type=float, default=0.6, help="requests a second")
    parser.add_argument("--cv", type=float, nargs="+", default=[2.0, 4.0], help="of the gaps between them")
    parser.add_argument("--objective", type=float, default=4.0, help="of first tokens [s]")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    files = fake.files_of(arguments.model)
    print("  cv  hosts a start  in time  median   p90")
    for cv in arguments.cv:
        requests = draw(arguments.seed, arguments.rate, cv, arguments.requests, arguments.models)
        for most in (1, HOSTS):
            first = play(files, requests, arguments.models, most, arguments.objective)
            in_time = sum(each <= arguments.objective for each in first) / len(first)
            tenth = statistics.quantiles(first, n=10)[-1]
            print(f"{cv:4.1f} {most:14} {in_time:7.0%} {statistics.median(first):6.2f}s {tenth:5.2f}s", flush=True)


if __name__ == "__main__":
    main()
