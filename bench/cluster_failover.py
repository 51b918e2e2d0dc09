"""How long new requests wait when the leading manager dies: medians of some rounds.

    build/venv/bin/python bench/cluster_failover.py [ROUNDS]

Two managers with a registry of files, two hosts and a gateway, as processes of this machine over loopback. Steps of
the models take 20 ms, so that something runs while it is killed.
"""

import pathlib
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "integration"))

import cluster
import server as heddle
import test_cluster as tests


def manager_dies(number):
    """Seconds until a new request is answered, beyond what it takes else. Streams run meanwhile."""
    with cluster.Cluster(hosts=2, managers=2, device_extra=tests.SLOW) as running:
        gateway = running.gateways[0]
        tests.ready(gateway, len(running.models))
        (first,) = [manager for manager in running.managers if tests.leads(manager)]
        streams = [tests.Stream(gateway, model, "1 2 3").began() for model in tests.TALKERS]
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert gateway.chat("adder", prompt) == answer
        began = time.monotonic()
        assert gateway.chat("adder", prompt) == answer
        usual = time.monotonic() - began
        first.signal(number)
        began = time.monotonic()
        assert gateway.chat("adder", prompt) == answer
        took = time.monotonic() - began - usual
        for stream in streams:
            stream.text()
        if number == signal.SIGSTOP:
            first.signal(signal.SIGCONT)
        return took


def row(what, values):
    print(f"{what:42} median {statistics.median(values) * 1000:6.0f} ms, most {max(values) * 1000:6.0f} ms")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
        row(f"manager, {number.name}", [manager_dies(number) for _ in range(rounds)])


if __name__ == "__main__":
    main()
