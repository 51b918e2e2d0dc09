"""A tenth of the clients mean harm: the others get right answers, and hardly later than without them."""

import pathlib
import random
import sys
import threading
import time

import pytest
import server as heddle

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))
import clients  # noqa: E402
import hostile  # noqa: E402

HONEST, HOSTILE = 9, 1
FLOOR_SECONDS = 0.1  # Below it two clients of one machine differ by chance.
BESIDE_ARENA = 512 << 20


def percentile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def times_of_honest(server, expected, seconds, seed):
    """How long each request of clients that ask one after the other took; every answer is checked."""
    taken, wrong = [], []

    def ask(number):
        rng = random.Random(f"{seed}-{number}")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            question = rng.choice(list(expected))
            began = time.monotonic()
            try:
                got = clients.ask(server.url, question)
                if got != expected[question]:
                    wrong.append((question, got))
            except Exception as error:
                wrong.append((question, repr(error)))
            taken.append(time.monotonic() - began)
            time.sleep(rng.uniform(0.02, 0.2))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(HONEST)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    return taken


@pytest.mark.slow
def test_honest_clients_do_not_notice():
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    models = heddle.demo_models()
    with heddle.Server(heddle.config(memory="16MiB")) as server:
        expected = {}
        for model in models:
            for prompt, _ in heddle.eval_set(model, 10):
                question = clients.Question(model, prompt, 0)
                expected[question] = clients.ask(server.url, question)
        idle = server.resident_bytes()
        alone = times_of_honest(server, expected, 20, seed)
        tally = clients.Tally()
        until = time.monotonic() + 60
        attackers = [
            threading.Thread(target=hostile.client, args=(server, models, n, seed, until, tally)) for n in range(HOSTILE)
        ]
        for attacker in attackers:
            attacker.start()
        beside = times_of_honest(server, expected, 60, seed)
        for attacker in attackers:
            attacker.join()
        figures = f"p99 {percentile(alone, 0.99):.3f} s alone, {percentile(beside, 0.99):.3f} s beside; {tally.counts}"
        print(figures)
        assert server.process.poll() is None
        assert tally.counts["attacks answered with 500"] == 0, tally.failures
        assert server.resident_bytes() - idle < BESIDE_ARENA
        assert percentile(beside, 0.99) <= 2 * max(percentile(alone, 0.99), FLOOR_SECONDS), figures
