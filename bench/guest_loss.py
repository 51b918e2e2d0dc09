"""How long a hot model's streams pause when the worker that hosts their guests ends or is stopped.

    build/venv/bin/python bench/guest_loss.py [--kills 100] [--stop]

Starts a server with two paced devices, keeps the hot model under load, and ends the host's worker again and again while it
runs attention for it. Of each loss counts the longest gap between two tokens of a stream in the second that follows, less the
usual one; the median over the streams, which all wait for the same steps.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import server as heddle  # noqa: E402
import test_weave as weave  # noqa: E402

STREAMS = 14
TOKENS = 100
STEP = 0.02
CALM = 2.5  # A worker that lived for longer is started again at once.


class Stream(threading.Thread):
    """Asks the hot model for long answers, one after the other, and notes when tokens come."""

    def __init__(self, url, number):
        super().__init__(daemon=True)
        self.url, self.number, self.times, self.ends = url, number, [], False
        self.start()

    def run(self):
        while not self.ends:
            letters = "".join(chr(97 + (self.number * 7 + k * k) % 26) for k in range(40))
            body = {"model": weave.HOT, "prompt": f"reverse: {letters}", "max_tokens": TOKENS + 10 * self.number, "ignore_eos": True, "stream": True}
            request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            begun = True
            with urllib.request.urlopen(request, timeout=300) as answer:
                for line in answer:
                    if line.startswith(b"data: {"):
                        self.times.append((time.monotonic(), begun))
                        begun = False
                    if self.ends:
                        return

    def gap(self, since, until):
        """The longest between two tokens of one answer, of which the later came between these times."""
        pairs = zip(self.times, self.times[1:])
        gaps = [later - earlier for (earlier, _), (later, begun) in pairs if since <= later <= until and not begun]
        return max(gaps, default=0)


def worker_of(server, device):
    """The process that acts for the device now."""
    return int(re.findall(rf"worker started device={device} epoch=\d+ pid=(\d+)", server.log())[-1])


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--stop", action="store_true", help="stop the worker for half a second instead")
    asked = arguments.parse_args()
    pauses = []
    with heddle.Server(weave.config(pace=f"{STEP * 1000:.0f}ms")) as server:
        weave.ask(server, weave.COLD, 0, 4)
        streams = [Stream(server.url, i) for i in range(STREAMS)]
        while len(pauses) < asked.kills:
            weave.wait_for(lambda: len(server.workers()) == 2)
            time.sleep(CALM)
            place, _ = weave.wait_for(lambda: weave.guests(server), 60)
            began = time.monotonic()
            worker = worker_of(server, "ab"[place])
            os.kill(worker, signal.SIGSTOP if asked.stop else signal.SIGKILL)
            time.sleep(0.5)
            if asked.stop:
                os.kill(worker, signal.SIGCONT)
            time.sleep(0.5)
            usual, after = (
                statistics.median(stream.gap(*span) for stream in streams)
                for span in ((began - 1, began), (began, began + 1))
            )
            pauses.append(max(0, after - usual))
        for stream in streams:
            stream.ends = True
    pauses.sort()
    print(f"{len(pauses)} losses: p50 {1000 * statistics.median(pauses):.0f} ms, p95 {1000 * pauses[int(0.95 * len(pauses))]:.0f} ms, "
          f"longest {1000 * pauses[-1]:.0f} ms")


if __name__ == "__main__":
    main()
