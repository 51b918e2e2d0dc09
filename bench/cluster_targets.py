"""What deaths and cuts cost a cluster: medians of some rounds, in a table.

    build/venv/bin/python bench/cluster_targets.py [--rounds 10] [--registry-away 60]

Two managers, four hosts and two gateways, each in a network namespace of its own, and etcd in another where there is one.
Steps of the models take 20 ms. Streams ask for log probabilities, so that each token is an event, with or without text. A pause is the longest gap between two tokens of a stream, less that of a usual step. Needs
root, iproute2 and nftables.
"""

import argparse
import contextlib
import pathlib
import re
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "integration"))

import cluster_load
import machines
import network
import server as heddle
import test_cluster as tests

STEP = 0.02


def row(what, values):
    median, most = statistics.median(values), max(values)
    print(f"| {what} | {median * 1000:.0f} ms | {most * 1000:.0f} ms | {len(values)} |", flush=True)


def pause(streams, since):
    """The longest gap that had not ended by then."""
    gaps = [b - a for stream in streams for a, b in zip(stream.times, stream.times[1:]) if b > since]
    return max(gaps, default=STEP) - STEP


def streams_at(gateway):
    return [tests.Stream(gateway, model, "1 2 3", logprobs=1).began() for model in tests.TALKERS]


@contextlib.contextmanager
def silent(running, name):
    """Nothing comes from that machine, and nothing gets there."""
    with contextlib.ExitStack() as cuts:
        for other in [*running.names, *running.etcds]:
            if other != name:
                cuts.enter_context(running.network.cut(name, other))
                cuts.enter_context(running.network.cut(other, name))
        yield


def next_decision(running, happen):
    """(until a new request is answered beyond what it takes else, pause of running streams)."""
    gateway = running.gateways[0]
    prompt, answer = heddle.eval_set("adder", 1)[0]
    streams = streams_at(gateway)
    assert gateway.chat("adder", prompt) == answer
    began = time.monotonic()
    assert gateway.chat("adder", prompt) == answer
    usual = time.monotonic() - began
    with happen():
        began = time.monotonic()
        assert gateway.chat("adder", prompt) == answer
        took = time.monotonic() - began - usual
        for stream in streams:
            stream.text()
    cluster_load.up(running)
    return took, pause(streams, began)


@contextlib.contextmanager
def killed(node, number=signal.SIGKILL):
    node.signal(number)
    if number != signal.SIGSTOP:
        node.process.wait()
    yield
    if number == signal.SIGSTOP:
        node.signal(signal.SIGCONT)
        node.await_line("this manager leads no longer")
    else:
        node.restart()


def managers(running, rounds):
    for what, happen in [
        ("killed", lambda: killed(running.leader())),
        ("stopped (SIGSTOP)", lambda: killed(running.leader(), signal.SIGSTOP)),
        ("cut off", lambda: silent(running, running.leader().name)),
        ("ended (SIGTERM)", lambda: killed(running.leader(), signal.SIGTERM)),
    ]:
        found = [next_decision(running, happen) for _ in range(rounds)]
        row(f"manager {what}: next decision", [took for took, _ in found])
        row(f"manager {what}: pause of running streams", [gap for _, gap in found])


def host_of(running, model):
    """The host that the model serves on."""
    device = running.gateways[0].call(f"/v1/models/{model}")[2]["status"]["device"]
    (host,) = [host for host in running.hosts if device.startswith(host.name + "/")]
    return host


def hosts(running, rounds):
    for what, happen in [("killed", killed), ("cut off", lambda host: silent(running, host.name))]:
        pauses = []
        for _ in range(rounds):
            stream = tests.Stream(running.gateways[0], "adder", "1 2 3", logprobs=1).began()
            began = time.monotonic()
            with happen(host_of(running, "adder")):
                stream.text()
            pauses.append(pause([stream], began))
            cluster_load.up(running)
        row(f"host {what}: pause of its streams", pauses)


def gateways(running, rounds):
    ends, pauses = [], []
    dies, stays = running.gateways
    for _ in range(rounds):
        streams_at(dies)
        streams = streams_at(stays)

        def requests():
            told = [running.told(host, "/metrics")[1] for host in running.hosts]
            return sum(int(re.search(r"^heddle_agent_requests_running (\d+)", text, re.M)[1]) for text in told)

        own = len(streams)
        dies.kill()
        began = time.monotonic()
        tests.wait_until(lambda: requests() <= own)
        ends.append(time.monotonic() - began)
        for stream in streams:
            stream.text()
        pauses.append(pause(streams, began))
        dies.restart()
        tests.ready(dies, len(running.models))
    row("gateway killed: its requests are cancelled", ends)
    row("gateway killed: pause of others' streams", pauses)


def registry(running, seconds):
    asked = [(model, prompt) for model in running.models for prompt, _ in heddle.eval_set(model, 12)]
    answers = {(model, prompt): running.gateways[0].chat(model, prompt) for model, prompt in asked}
    with cluster_load.Clients(running, answers) as clients:
        clients.more()
        running.etcd.kill()
        clients.more(seconds)
        running.etcd.start()
        tests.wait_until(lambda: any(tests.leads(manager) for manager in running.managers), 60)
        clients.more()
    print(f"| registry away for {seconds} s: requests that failed or differed, of {clients.counts.total()} | {len(clients.wrong)} | | 1 |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--registry-away", type=int, default=60)
    options = parser.parse_args()
    if (why_not := network.why_not()) is not None:
        sys.exit(why_not)
    print("| what | median | most | rounds |\n| --- | --- | --- | --- |")
    with machines.Machines(hosts=4, gateways=2, managers=2, device_extra=tests.SLOW) as running:
        for gateway in running.gateways:
            tests.ready(gateway, len(running.models))
        cluster_load.up(running)
        hosts(running, options.rounds)
        gateways(running, options.rounds)
        managers(running, options.rounds)
        if running.etcd is not None:
            registry(running, options.registry_away)


if __name__ == "__main__":
    main()
