"""A cluster on machines of their own (network namespaces): any process dies, any link is cut in one direction."""

import collections
import concurrent.futures
import contextlib
import pathlib
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import cluster
import network
import pytest
import server as heddle
from test_cluster import leads, ready, wait_until

WHY_NOT = network.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

ETCD = shutil.which("etcd") or heddle.ROOT / "build/etcd/usr/bin/etcd"
STATUS_PORT = 9464
CUT = 3  # Seconds; a link is given up after two.
PACE = ", pace: {step: 5ms}"


class Machines(cluster.Cluster):
    """A cluster of which each process has a machine, and etcd another, as far as there is etcd."""

    def __init__(self, **options):
        self.network = None
        self.etcd = None
        names = [f"m{i + 1}" for i in range(options["managers"])]
        names += [f"h{i + 1}" for i in range(options["hosts"])] + [f"g{i + 1}" for i in range(options["gateways"])]
        self.network = network.Network([*names, "etcd", "client"]).__enter__()
        self.names = names
        super().__init__(**options)

    def address(self, node):
        return self.network.address(node.name)

    def command(self, node):
        return self.network.command(node.name)

    def registry(self):
        status = f"  status: \"0.0.0.0:{STATUS_PORT}\"\n"
        if not pathlib.Path(ETCD).exists():
            return super().registry() + status
        return f"  registry: \"etcd://{self.network.address('etcd')}:2379\"\n" + status

    def told(self, node, path):
        """(status, text) of what a manager or an agent tells of itself."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://{self.address(node)}:{STATUS_PORT}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def start_etcd(self):
        if not pathlib.Path(ETCD).exists():
            return
        at = self.network.address("etcd")
        with (self.path / "etcd.log").open("a") as log:
            self.etcd = subprocess.Popen(
                [
                    *(*self.network.command("etcd"), ETCD, "--data-dir", self.path / "etcd", "--log-level", "error"),
                    *("--listen-client-urls", f"http://{at}:2379", "--advertise-client-urls", f"http://{at}:2379"),
                    *("--listen-peer-urls", f"http://{at}:2380", "--initial-advertise-peer-urls", f"http://{at}:2380"),
                    *("--initial-cluster", f"default=http://{at}:2380"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def leader(self):
        (first,) = [manager for manager in self.managers if manager.process.poll() is None and leads(manager)]
        return first

    def __enter__(self):
        self.start_etcd()
        self._inside = self.network.inside("client")
        self._inside.__enter__()
        return self.start()

    def __exit__(self, *why):
        try:
            super().__exit__(*why)
        finally:
            self._inside.__exit__(None, None, None)
            if self.etcd is not None:
                self.etcd.kill()
                self.etcd.wait()
            self.network.__exit__()


class Clients:
    """Four that ask without a pause, each question at one gateway or another, and compare with what was answered at
    rest. A gateway may be said to be down: whom it cuts off asks at another."""

    def __init__(self, running, answers):
        self.running, self.answers = running, answers
        self.counts = collections.Counter()
        self.wrong = []
        self.slowest = 0
        self.down = set()
        self._ends = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self):
        self._pool = concurrent.futures.ThreadPoolExecutor(4)
        self._runs = [self._pool.submit(self._run, number) for number in range(4)]
        return self

    def __exit__(self, *_):
        self._ends.set()
        for run in self._runs:
            run.result(120)
        self._pool.shutdown()

    def _run(self, number):
        questions = list(self.answers)
        turn = number * 7
        while not self._ends.is_set():
            turn += 1
            model, prompt = questions[turn % len(questions)]
            gateways = [gateway for gateway in self.running.gateways if gateway not in self.down]
            self._ask(gateways[turn % len(gateways)], model, prompt)

    def _ask(self, gateway, model, prompt):
        began = time.monotonic()
        try:
            got = gateway.chat(model, prompt)
        except (OSError, urllib.error.URLError, AssertionError) as error:
            if gateway in self.down:
                return  # It died with this request: the client asks elsewhere.
            got = f"{gateway.name}: {error!r}"
        with self._lock:
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.counts[model] += 1
            if got != self.answers[(model, prompt)]:
                self.wrong.append((model, prompt, got))

    def more(self, seconds=0, answers=8):
        """Goes on for so long, and for so many answers of all models together."""
        until = time.monotonic() + seconds
        before = self.counts.total()
        wait_until(lambda: time.monotonic() >= until and self.counts.total() >= before + answers, 60 + seconds)

    def check(self):
        assert not self.wrong, self.wrong[:3]


def up(running):
    """Until all hosts are linked, and every worker is up."""
    def known(gateway):
        hosts = gateway.call("/api/hosts")[2]["hosts"]
        devices = gateway.call("/api/devices")[2]["devices"]
        return (
            all(host["state"] == "here" for host in hosts)
            and len(devices) == len(running.hosts)
            and all(device["up"] for device in devices)
        )

    for gateway in running.gateways:
        wait_until(lambda g=gateway: known(g), 60)


@pytest.fixture(scope="module")
def running():
    with Machines(hosts=4, gateways=2, managers=2, device_extra=PACE) as machines:
        for gateway in machines.gateways:
            ready(gateway, len(machines.models))
        up(machines)
        yield machines


@pytest.fixture(scope="module")
def answers(running):
    """What is answered at rest, and that this is right."""
    asked = [(model, prompt, answer) for model in running.models for prompt, answer in heddle.eval_set(model, 12)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda one: running.gateways[0].chat(one[0], one[1]), asked))
    assert sum(text != one[2] for text, one in zip(got, asked)) <= 1
    return {(one[0], one[1]): text for text, one in zip(got, asked)}


@pytest.fixture
def clients(running, answers):
    with Clients(running, answers) as asking:
        asking.more()
        yield asking
    asking.check()


def test_managers_and_agents_tell_of_themselves(running):
    leader = running.leader()
    for manager in running.managers:
        status, text = running.told(manager, "/metrics")
        assert status == 200 and f"heddle_manager_leads {1 if manager is leader else 0}\n" in text
        assert running.told(manager, "/readyz")[0] == 200
    assert 'heddle_manager_hosts{state="here"} 4\n' in running.told(leader, "/metrics")[1]
    for host in running.hosts:
        status, text = running.told(host, "/metrics")
        assert status == 200 and "heddle_agent_led 1\n" in text and "heddle_agent_leaving 0\n" in text
        assert 'heddle_worker_up{device="cpu0"} 1\n' in text and "heddle_agent_requests_running 0\n" in text
        assert running.told(host, "/readyz")[0] == running.told(host, "/healthz")[0] == 200
    assert running.told(leader, "/v1/models")[0] == 404


def test_every_process_is_killed_in_turn(running, clients):
    first = running.leader()
    (other,) = [manager for manager in running.managers if manager is not first]
    for node in [first, other, *running.hosts]:
        node.kill()
        clients.more(0.5)
        node.restart()
        clients.more()
        up(running)
    for gateway in running.gateways:
        clients.down.add(gateway)
        gateway.kill()
        clients.more(0.5)
        gateway.restart()
        ready(gateway, len(running.models))
        clients.down.remove(gateway)
        clients.more()
    clients.check()


def test_links_are_cut_in_one_direction(running, clients):
    manager = running.leader().name
    pairs = [("h1", manager), ("h2", "g1"), ("g2", manager)]
    if running.etcd is not None:
        pairs.append((manager, "etcd"))
    for one, other in pairs:
        for sender, receiver in [(one, other), (other, one)]:
            with running.network.cut(sender, receiver):
                clients.more(CUT, answers=1)
            up(running)
            clients.more()
            clients.check()


def test_links_lose_packets(running, clients):
    with running.network.lossy(running.names):
        clients.more(5, answers=4)
    up(running)
    clients.more()


def test_the_registry_is_frozen_dies_and_comes_back(running, clients):
    if running.etcd is None:
        pytest.skip("there is no etcd")
    leader = running.leader()
    running.etcd.send_signal(signal.SIGSTOP)
    leader.await_line("this manager leads on", leader.log().count("this manager leads on") + 1)
    clients.more(CUT, answers=20)  # New ones, which a manager has decided about.
    running.etcd.send_signal(signal.SIGCONT)
    clients.more()
    running.etcd.kill()
    running.etcd.wait()
    clients.more(CUT)
    clients.more(answers=20)
    running.start_etcd()
    wait_until(lambda: any(leads(manager) for manager in running.managers), 60)
    clients.more()


def drain(running, host):
    return subprocess.run(
        [heddle.BINARY, "drain", host.name, "--url", running.gateways[1].url], capture_output=True, text=True, timeout=60
    )


def test_hosts_are_drained_and_restarted_one_after_the_other(running, clients):
    for host in running.hosts:
        done = drain(running, host)
        assert done.returncode == 0, done.stderr
        assert f"{host.name} is empty" in done.stdout
        assert host.stop() == 0
        clients.more()
        host.restart()
        up(running)
    for manager in running.managers:
        assert manager.stop() == 0
        clients.more()
        manager.restart()
        up(running)
    clients.check()
    assert drain(running, running.hosts[0]).returncode == 0
    undone = [heddle.BINARY, "drain", "--undo", "h1", "--url", running.gateways[0].url]
    assert "takes requests again" in subprocess.run(undone, capture_output=True, text=True, check=True).stdout
    up(running)
    wrong = subprocess.run([heddle.BINARY, "drain", "h9", "--url", running.gateways[0].url], capture_output=True, text=True)
    assert wrong.returncode == 1 and 'there is no host "h9"; there are h1, h2, h3, h4' in wrong.stderr
