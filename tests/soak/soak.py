"""Many clients against a memory too small for the models, while workers are killed.

Counts at the client: every request that was sent ends in exactly one answer, and every answer that can
be known is right. Ends with status 1 and the first failures where not.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import server as heddle  # noqa: E402


class Tally:
    """What the clients saw. Any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.failures = []

    def add(self, what, detail=None):
        with self.lock:
            self.counts[what] += 1
            if detail is not None and len(self.failures) < 20:
                self.failures.append((what, detail))


def ask(url, model, prompt, vanish_after=None):
    """Streams one answer: (text, finish reason), or None where the client itself hung up."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0, "stream": True}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response.read()[:300]!r}")
        text, finish, events, ended = "", None, 0, False
        for line in response:
            if line.startswith(b"data: [DONE]"):
                ended = True
            elif line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    raise RuntimeError(event["error"])
                events += 1
                for choice in event["choices"]:
                    text += choice["delta"].get("content") or ""
                    finish = choice["finish_reason"] or finish
                if vanish_after is not None and events >= vanish_after:
                    return None
        if not ended:
            raise RuntimeError(f"the stream broke off after {text!r}")
        return text, finish
    finally:
        connection.close()


def client(server, number, seed, until, questions, expected, tally):
    """One client: asks, checks, sometimes hangs up or is slow."""
    rng = random.Random(f"{seed}-{number}")
    while time.monotonic() < until:
        model = rng.choice(list(questions))
        index = rng.randrange(len(questions[model]))
        prompt = questions[model][index]
        vanish = rng.randrange(1, 8) if rng.random() < 0.1 else None
        tally.add("sent")
        try:
            got = ask(server.url, model, prompt, vanish)
        except (OSError, RuntimeError, http.client.HTTPException, ValueError) as error:
            tally.add("lost", f"{model} {prompt!r}: {error}")
            continue
        if got is None:
            tally.add("cancelled by the client")
        elif got == expected[model][index]:
            tally.add("right")
        else:
            tally.add("wrong", f"{model} {prompt!r}: {got!r} instead of {expected[model][index]!r}")
        if rng.random() < 0.05:
            time.sleep(rng.random())


def kill_workers(server, every, seed, until, tally):
    rng = random.Random(f"{seed}-kills")
    while time.monotonic() < until - 5:
        time.sleep(every * rng.uniform(0.5, 1.5))
        workers = server.workers()
        for worker in workers if rng.random() < 0.2 else workers[:1]:
            try:
                os.kill(worker, signal.SIGKILL)
                tally.add("workers killed")
            except ProcessLookupError:
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--kill-every", type=float, default=10, metavar="S", help="seconds; 0 kills nobody")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--memory", default="3584KiB", help="of each of the two devices; by default each holds one model")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"soak: seed {seed}, {options.minutes:g} minutes, a kill every {options.kill_every:g} s", flush=True)

    devices = "".join(
        f'  - {{name: cpu{i}, kind: cpu, cores: "{i}", memory: {options.memory}, page: 64KiB}}\n' for i in range(2)
    )
    questions = {name: [prompt for prompt, _ in heddle.eval_set(name, 60)] for name in heddle.demo_models()}
    tally = Tally()
    with heddle.Server(heddle.config(devices=devices)) as server:
        # What each model says when nothing disturbs it: the text that any disturbance must not change.
        expected = {
            name: [ask(server.url, name, prompt) for prompt in prompts] for name, prompts in questions.items()
        }
        start = time.monotonic()
        until = start + 60 * options.minutes
        threads = [
            threading.Thread(target=client, args=(server, n, seed, until, questions, expected, tally))
            for n in range(options.clients)
        ]
        if options.kill_every > 0:
            threads.append(
                threading.Thread(target=kill_workers, args=(server, options.kill_every, seed, until, tally))
            )
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(10 if sys.stderr.isatty() else 30)
            print(f"soak: {time.monotonic() - start:5.0f} s {dict(tally.counts)}", flush=True)
        alive = server.process.poll() is None
        resident = server.resident_bytes() / 2**20
        status = server.stop()
    counts = tally.counts
    print(f"soak: {dict(counts)}; {resident:.0f} MiB resident at the end; exit status {status}")
    ended = counts["right"] + counts["wrong"] + counts["lost"] + counts["cancelled by the client"]
    for what, detail in tally.failures:
        print(f"soak: {what}: {detail}")
    good = alive and status == 0 and counts["wrong"] == counts["lost"] == 0 and ended == counts["sent"] > 0
    print("soak: passed" if good else "soak: FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
