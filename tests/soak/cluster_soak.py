"""Many clients of a cluster, while hosts, managers, gateways and members of etcd die, hang and are cut off at random.

Counts at the client: every request that was sent ends in exactly one answer, and every answer is right. Requests of a
gateway that is killed may end with it, and no others. Ends with status 1 and the first failures where not, where a
process ended that nobody ended, or where the cluster is not whole when all is over. As root each process has a machine
of its own (a network namespace), and links are cut; else all are on loopback.
"""

import argparse
import contextlib
import http.client
import pathlib
import random
import re
import shutil
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import clients  # noqa: E402
import machines  # noqa: E402
import network  # noqa: E402
import server as heddle  # noqa: E402
import soak  # noqa: E402
from cluster_load import up  # noqa: E402
from test_cluster import ready, wait_until  # noqa: E402

PACE = ", pace: {step: 2ms}"
DISTURBERS = 2  # So that one thing may happen during another.
REST_SECONDS = 60  # In which the cluster is whole again when nothing happens any more.


class Gates:
    """Which gateways clients may ask, and how often each was killed. Any thread."""

    def __init__(self, running):
        self._lock = threading.Lock()
        self._gateways = running.gateways
        self._closed, self._kills = set(), dict.fromkeys(running.gateways, 0)

    def pick(self, rng):
        """(a gateway, its address, its kills)."""
        with self._lock:
            gateway = rng.choice([gateway for gateway in self._gateways if gateway not in self._closed])
            return gateway, gateway.url, self._kills[gateway]

    def close(self, gateway, killed):
        """No new requests go there. False: it is the last one."""
        with self._lock:
            if len(self._closed) + 1 >= len(self._gateways):
                return False
            self._closed.add(gateway)
            self._kills[gateway] += killed
            return True

    def open(self, gateway):
        with self._lock:
            self._closed.remove(gateway)

    def killed_since(self, gateway, kills):
        with self._lock:
            return self._kills[gateway] != kills

    def closed(self, gateway):
        with self._lock:
            return gateway in self._closed


# ---- Clients ----


def exchange(gates, question, expected, tally, rng):
    """One request, one entry in the tally: right, wrong, lost, ended with its gateway, or cancelled."""
    how = {"stream": rng.random() < 0.8}
    if how["stream"] and rng.random() < 0.1:
        how["vanish_after"] = rng.randrange(1, 8)
    tally.add("sent")
    began = time.monotonic()
    while True:
        gateway, url, kills = gates.pick(rng)
        try:
            got = clients.ask(url, question, **how)
        except (clients.Refused, ConnectionRefusedError) as refused:
            if gates.closed(gateway) or gates.killed_since(gateway, kills):
                tally.add("not taken by a gateway that ends, sent again")
                continue
            tally.add("lost", f"{gateway.name} {question} {how}: {type(refused).__name__} {refused}")
        except (OSError, RuntimeError, http.client.HTTPException, ValueError, KeyError) as error:
            if gates.killed_since(gateway, kills):
                tally.add("ended with its gateway")
            else:
                tally.add("lost", f"{gateway.name} {question} {how}: {type(error).__name__} {error}")
        else:
            if got is None:
                tally.add("cancelled by the client")
            elif got == expected[question]:
                tally.add("right")
            else:
                tally.add("wrong", f"{gateway.name} {question} {how}: {got!r} instead of {expected[question]!r}")
        with tally.lock:
            tally.slowest = max(tally.slowest, time.monotonic() - began)
        return


def client(gates, number, seed, until, expected, tally):
    rng = random.Random(f"{seed}-{number}")
    questions = list(expected)
    while time.monotonic() < until:
        exchange(gates, rng.choice(questions), expected, tally, rng)


# ---- What happens ----


class Disturber:
    """What happens to a cluster. What one thread does something to, the others leave alone."""

    def __init__(self, running, gates, tally):
        self.running, self.gates, self.tally = running, gates, tally
        self._lock = threading.Lock()
        self._taken = set()
        self.kinds = [self.kill_host, self.restart_host, self.freeze_host, self.kill_manager, self.freeze_manager,
                      self.kill_all_managers, self.kill_gateway, self.restart_gateway]
        if running.etcd is not None:
            self.kinds += [self.kill_member, self.freeze_member, self.kill_registry]
        if isinstance(running, machines.Machines):
            self.kinds += [self.cut_one_way, self.cut_both_ways, self.lose_packets]

    @contextlib.contextmanager
    def taking(self, things):
        """These, unless another thread has one of them: then none of them."""
        with self._lock:
            free = not self._taken & set(things)
            if free:
                self._taken |= set(things)
        try:
            yield list(things) if free else []
        finally:
            if free:
                with self._lock:
                    self._taken -= set(things)

    def ended_by_themselves(self):
        with self._lock:
            taken = set(self._taken)
            return [node for node in self.running.nodes() if node not in taken and node.process.poll() is not None]

    def run(self, number, every, seed, until):
        rng = random.Random(f"{seed}-disturber-{number}")
        while True:
            time.sleep(every * rng.uniform(0.5, 1.5))
            if time.monotonic() > until:
                return
            what = rng.choice(self.kinds)
            if what(rng):
                self.tally.add(what.__name__.replace("_", " "))

    def restart(self, node):
        """As a supervisor does: while the registry is in trouble the record of a process that was killed lives longer
        than the next one of its name waits."""
        deadline = time.monotonic() + REST_SECONDS
        while True:
            try:
                node.restart()
                return
            except AssertionError:
                taken = node.process.poll() == 1 and re.search(r"called \"\w+\" is running", node.log().splitlines()[-1])
                if not taken or time.monotonic() > deadline:
                    raise
                self.tally.add("not started, as the name was taken; started again")

    def killed(self, nodes, rng):
        """Whether they could be had: killed and, after a while, started again."""
        with self.taking(nodes) as taken:
            for node in taken:
                node.kill()
            time.sleep(rng.uniform(0, 3))
            for node in taken:
                self.restart(node)
            return bool(taken)

    def frozen(self, node, rng):
        with self.taking([node]) as taken:
            for each in taken:
                each.signal(signal.SIGSTOP)
                time.sleep(rng.uniform(0.2, 5))
                each.signal(signal.SIGCONT)
            return bool(taken)

    def kill_host(self, rng):
        return self.killed([rng.choice(self.running.hosts)], rng)

    def freeze_host(self, rng):
        return self.frozen(rng.choice(self.running.hosts), rng)

    def restart_host(self, rng):
        """As for an upgrade."""
        with self.taking([rng.choice(self.running.hosts)]) as taken:
            for host in taken:
                status = host.stop()
                if status != 0:
                    self.tally.add("ends that were not clean", f"{host.name}: {status}")
                self.restart(host)
            return bool(taken)

    def kill_manager(self, rng):
        return self.killed([rng.choice(self.running.managers)], rng)

    def kill_all_managers(self, rng):
        return self.killed(self.running.managers, rng)

    def freeze_manager(self, rng):
        return self.frozen(rng.choice(self.running.managers), rng)

    def kill_gateway(self, rng):
        return self.without_gateway(rng, kill=True)

    def restart_gateway(self, rng):
        return self.without_gateway(rng, kill=False)

    def without_gateway(self, rng, kill):
        gateway = rng.choice(self.running.gateways)
        with self.taking([gateway]) as taken:
            if not taken or not self.gates.close(gateway, killed=kill):
                return False
            if kill:
                gateway.kill()
                time.sleep(rng.uniform(0, 3))
            elif (status := gateway.stop()) != 0:
                self.tally.add("ends that were not clean", f"{gateway.name}: {status}")
            self.restart(gateway)
            ready(gateway, len(self.running.models))
            self.gates.open(gateway)
            return True

    def kill_member(self, rng):
        with self.taking([rng.choice(self.running.etcd.members)]) as taken:
            for member in taken:
                member.kill()
                time.sleep(rng.uniform(0, 3))
                self.running.etcd.start(taken)
            return bool(taken)

    def kill_registry(self, rng):
        with self.taking(self.running.etcd.members) as taken:
            for member in taken:
                member.kill()
            time.sleep(rng.uniform(0, 3))
            self.running.etcd.start(taken)
            return bool(taken)

    def freeze_member(self, rng):
        with self.taking([rng.choice(self.running.etcd.members)]) as taken:
            for member in taken:
                member.freeze()
                time.sleep(rng.uniform(0.2, 5))
                member.thaw()
            return bool(taken)

    def cut_one_way(self, rng):
        return self.cut(rng, both=False)

    def cut_both_ways(self, rng):
        return self.cut(rng, both=True)

    def cut(self, rng, both):
        pair = tuple(rng.sample(self.running.names + self.running.etcds, 2))
        with self.taking([frozenset(pair)]) as taken, contextlib.ExitStack() as ways:
            for one, other in [pair, pair[::-1]][: 1 + both] if taken else []:
                ways.enter_context(self.running.network.cut(one, other))
            time.sleep(rng.uniform(0.2, 5))
            return bool(taken)

    def lose_packets(self, rng):
        with self.taking(["packets"]) as taken:
            with self.running.network.lossy(self.running.names) if taken else contextlib.nullcontext():
                time.sleep(rng.uniform(1, 4))
            return bool(taken)


# ---- The end ----


def faults_at_rest(running):
    """What is not as it should be when no request is left; waits for things to settle."""
    try:
        up(running)
        wait_until(lambda: len(running.leaders()) == 1, REST_SECONDS)
    except (AssertionError, OSError) as error:
        away = [node.name for node in running.nodes() if node.process.poll() is not None]
        leading = [manager.name for manager in running.leaders()]
        return [f"the cluster is not whole: {type(error).__name__} {error}; {away} do not run, {leading} lead"]
    deadline = time.monotonic() + REST_SECONDS
    while True:
        faults = []
        for gateway in running.gateways:
            metrics = gateway.metrics()
            faults += [f"{gateway.name}: {name} {value:g}" for name, value in metrics.items()
                       if value and name.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting",
                                                     "heddle_misplaced_reports_total"))]
        if not faults or time.monotonic() > deadline:
            return faults
        time.sleep(0.5)


def start(options):
    kind = machines.Machines if network.why_not() is None else machines.Registered
    print(f"cluster soak: {kind.__name__}", flush=True)
    return kind(hosts=options.hosts, gateways=options.gateways, managers=options.managers, registries=options.registries,
                joining=options.joining, device_extra=PACE)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--every", type=float, default=3, metavar="S", help=f"seconds, for each of {DISTURBERS} disturbers")
    parser.add_argument("--clients", type=int, default=8)
    for what, count in (("hosts", 4), ("gateways", 3), ("managers", 2), ("registries", 3)):
        parser.add_argument(f"--{what}", type=int, default=count)
    parser.add_argument("--joining", action="store_true", help="hosts and gateways are not listed: they join")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep-logs", metavar="FOLDER", help="where the logs go when the run failed")
    return parser.parse_args()


def main():
    options = parse_options()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"cluster soak: seed {seed}, {options.minutes:g} minutes", flush=True)
    tally = clients.Tally()
    tally.slowest = 0
    faults = []

    def run(function, *arguments):
        try:
            function(*arguments)
        except Exception as error:  # A thread that ends early would make the run easier than it says.
            faults.append(f"{function.__name__}: {type(error).__name__} {error}")

    with start(options) as running:
        for gateway in running.gateways:
            ready(gateway, len(running.models))
        up(running)
        expected = soak.undisturbed(running.gateways[0], running.models, seed, weave=False)
        gates = Gates(running)
        disturber = Disturber(running, gates, tally)
        began = time.monotonic()
        until = began + 60 * options.minutes
        work = [(client, gates, number, seed, until, expected, tally) for number in range(options.clients)]
        work += [(disturber.run, number, options.every, seed, until) for number in range(DISTURBERS)]
        threads = [threading.Thread(target=run, args=task) for task in work]
        for thread in threads:
            thread.start()
        shown = began
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            for node in disturber.ended_by_themselves():
                faults.append(f"{node.name} ended with status {node.process.returncode}")
                disturber.restart(node)
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                print(f"cluster soak: {shown - began:5.0f} s {dict(sorted(tally.counts.items()))}", flush=True)
        faults += faults_at_rest(running)
        counts = tally.counts
        ended = sum(counts[how] for how in ("right", "wrong", "lost", "ended with its gateway", "cancelled by the client"))
        if counts["wrong"] or counts["lost"] or ended != counts["sent"] or not counts["right"]:
            faults.append(f"{counts['wrong']} wrong, {counts['lost']} lost, {ended} of {counts['sent']} answered")
        if counts["ends that were not clean"]:
            faults.append(f"{counts['ends that were not clean']} ends that were not clean")
        if faults and options.keep_logs:
            shutil.copytree(running.path, options.keep_logs, ignore=shutil.ignore_patterns("*.key", "e?", "registry"))
    print(f"cluster soak: {dict(sorted(counts.items()))}; the slowest answer took {tally.slowest:.1f} s")
    for what, detail in tally.failures:
        print(f"cluster soak: {what}: {detail}")
    for fault in faults:
        print(f"cluster soak: {fault}")
    print("cluster soak: FAILED" if faults else f"cluster soak: passed: {counts['right']} right, 0 wrong, 0 lost")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
