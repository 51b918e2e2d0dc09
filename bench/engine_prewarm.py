#!/usr/bin/env python3
"""What it is worth that external engines come before they are asked for: the time to the first token of requests that
find their engine resumed by forecast, against requests to one that runs and against those that have to wait for it.

    bench/engine_prewarm.py [--window 6] [--start 3] [--wake 1.5] [--first-token-ms 50] [--days 13]
                            [--binary build/release/heddle]

Two scripted engines (tests/engines/engine.py) of which one runs at a time sleep and wake in times that are known; a day
has four windows of `--window` seconds. Each engine is asked for in one window of the day, four requests one after the
other, the first 0.2 s after the window began. The first three days are learnt from and are not counted. Then the same
without forecasts, where every first request is a miss. Hits and misses are as the server counts them.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/integration"))
import engines  # noqa: E402
import server as heddle  # noqa: E402

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
LEARN_DAYS = 3
WARM = 3  # Requests of a turn that find their engine running.
KINDS = ("warm", "hit", "attach", "miss")


def first_token(url, model):
    """Seconds to the first byte of a streamed answer."""
    body = {"model": model, "prompt": "x", "max_tokens": 4, "stream": True}
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    began, first = time.perf_counter(), None
    with OPENER.open(request, timeout=600) as response:
        for line in response:
            if line.startswith(b"data: {"):
                assert b'"error"' not in line, line
                first = first or time.perf_counter() - began
    return first


def starts(server, model):
    return next(each for each in server.call("/api/forecasts")[2]["models"] if each["model"] == model)["starts"]


def live(options, days, skip, planner):
    """{kind: seconds to the first token} by how the first request of a turn found its engine, and of the others."""
    text = engines.by_turns(options.window, options.start, options.wake, options.first_token_ms, planner)
    found = {kind: [] for kind in KINDS}
    with heddle.Server(text) as server:
        for turn in range(days * len(engines.TURNS)):
            model = engines.next_turn(options.window)
            time.sleep(0.2)
            before = starts(server, model)
            first = first_token(server.url, model)
            after = starts(server, model)
            others = [first_token(server.url, model) for _ in range(WARM)]
            if turn >= skip * len(engines.TURNS):
                (kind,) = (kind for kind in after if after[kind] > before[kind])
                found[kind].append(first)
                found["warm"] += others
        wasted = sum(each["wasted_bytes"] for each in server.call("/api/forecasts")[2]["models"])
    return found, wasted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=6, help="seconds")
    parser.add_argument("--start", type=float, default=3, help="seconds that an engine takes to start")
    parser.add_argument("--wake", type=float, default=1.5, help="seconds that it takes to wake")
    parser.add_argument("--first-token-ms", type=float, default=50)
    parser.add_argument("--days", type=int, default=13, help="of which the first three are not counted")
    parser.add_argument("--binary", type=pathlib.Path, default=heddle.BINARY)
    options = parser.parse_args()
    heddle.BINARY = options.binary.resolve()

    ahead, wasted = live(options, options.days, LEARN_DAYS, "")
    asked, _ = live(options, max(options.days - LEARN_DAYS, 2) // 2 + 1, 1, ", prewarm: false")
    warm = statistics.median(ahead["warm"] + asked["warm"])
    print(f"engines that wake in {options.wake} s: an engine that runs gives its first token after {1e3 * warm:.1f} ms")
    for name, found in (("by forecast", ahead), ("when asked for", asked)):
        for kind in KINDS[1:]:
            if found[kind]:
                median, worst = statistics.median(found[kind]), max(found[kind])
                print(
                    f"{name}: {kind:6} {len(found[kind]):3} times, first token {1e3 * median:7.1f} ms at the median "
                    f"({median / warm:.2f} times), {1e3 * worst:.1f} ms at most"
                )
    print(f"prewarmed in vain: {wasted} bytes")


if __name__ == "__main__":
    main()
