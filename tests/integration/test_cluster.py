"""Managers, gateways and hosts of one cluster: right answers while any of them is killed."""

import base64
import concurrent.futures
import json
import re
import shutil
import signal
import subprocess
import time
import urllib.request

import cluster
import pytest
import server as heddle

TALKERS = ["adder", "sorter"]  # Whose answers go on and on.
LONG = 120  # Tokens of an answer that runs while something is killed.


def wait_until(what, seconds=30):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ready(gateway, models=1):
    """Until hosts and models are known there."""
    wait_until(lambda: len(gateway.call("/v1/models")[2]["data"]) >= models)


class Stream:
    """A streamed completion, read to its end in a thread."""

    def __init__(self, gateway, model, prompt, tokens=LONG, **more):
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
        body |= more
        request = urllib.request.Request(
            gateway.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        self.pieces, self.times, self.error = [], [], None
        self._request = request
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._read = self._pool.submit(self._run)

    def _run(self):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self._request, timeout=120) as answer:
                for line in answer:
                    if line.startswith(b"data: {"):
                        event = json.loads(line[6:])
                        if "error" in event:
                            self.error = event["error"]
                        elif event["choices"]:
                            self.pieces.append(event["choices"][0]["text"])
                            self.times.append(time.monotonic())
        except OSError as error:
            self.error = error

    def began(self):
        wait_until(lambda: sum(map(bool, self.pieces)) > 3 or self._read.done())  # Some tokens show no text.
        assert not self._read.done(), (self.error, "".join(self.pieces))
        return self

    def ended(self):
        return self._read.done()

    def text(self):
        self._read.result(120)
        assert self.error is None, self.error
        return "".join(self.pieces)


SLOW = ", pace: {step: 20ms}"  # So that there is time to kill something.


@pytest.fixture(scope="module")
def expected():
    """What the models answer when nothing happens."""
    texts = {}
    with heddle.Server(heddle.config(memory="8MiB")) as alone:
        for model in TALKERS:
            body = {"model": model, "prompt": "1 2 3", "max_tokens": LONG, "temperature": 0, "ignore_eos": True}
            texts[model] = alone.call("/v1/completions", body)[2]["choices"][0]["text"]
    return texts


def test_two_gateways_one_manager_and_four_hosts_answer_right():
    with cluster.Cluster(hosts=4, gateways=2) as running:
        for gateway in running.gateways:
            ready(gateway, len(running.models))
        asked = [(g, m, p, a) for m in running.models for p, a in heddle.eval_set(m, 20) for g in running.gateways]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda one: one[0].chat(one[1], one[2]) == one[3], asked))
        assert got.count(False) <= len(asked) // 100, [one[1:] for one, right in zip(asked, got) if not right]
        devices = running.gateways[0].call("/api/devices")[2]["devices"]
        assert sorted(device["name"] for device in devices) == [f"h{i}/cpu0" for i in (1, 2, 3, 4)]
        assert all(device["up"] for device in devices)


def test_streams_go_on_elsewhere_when_their_host_dies(expected):
    with cluster.Cluster(hosts=2, device_extra=SLOW) as running:
        gateway = running.gateways[0]
        ready(gateway, len(running.models))
        streams = {model: Stream(gateway, model, "1 2 3").began() for model in TALKERS}
        running.hosts[0].kill()
        texts = {model: stream.text() for model, stream in streams.items()}
        assert texts == expected
        running.hosts[0].start()
        wait_until(lambda: all(d["up"] for d in gateway.call("/api/devices")[2]["devices"]))


def test_streams_know_nothing_of_the_death_of_the_manager(expected):
    with cluster.Cluster(hosts=2, device_extra=SLOW) as running:
        gateway, manager = running.gateways[0], running.managers[0]
        ready(gateway, len(running.models))
        streams = {model: Stream(gateway, model, "1 2 3").began() for model in TALKERS}
        loads = sum(host.log().count("load model=") for host in running.hosts)
        manager.kill()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(gateway.chat, "sorter", heddle.eval_set("sorter", 1)[0][0])
            time.sleep(0.3)
            manager.start()
            assert waits.result(60) == heddle.eval_set("sorter", 1)[0][1]
        assert {model: stream.text() for model, stream in streams.items()} == expected
        gaps = [b - a for stream in streams.values() for a, b in zip(stream.times, stream.times[1:])]
        assert max(gaps) < 5, "nobody waited for a manager"
        assert sum(host.log().count("load model=") for host in running.hosts) == loads, "what was there was taken up"


def test_requests_wait_for_a_manager_that_has_heard_of_no_host():
    with cluster.Cluster(hosts=2, models=["sorter"]) as running:
        gateway, manager = running.gateways[0], running.managers[0]
        ready(gateway)
        prompt, answer = heddle.eval_set("sorter", 1)[0]
        assert gateway.chat("sorter", prompt) == answer
        manager.kill()
        for host in running.hosts:
            host.signal(signal.SIGSTOP)
        manager.restart()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(gateway.chat, "sorter", prompt)
            gateway.await_line("manager is linked", 2)
            for host in running.hosts:
                host.signal(signal.SIGCONT)
            assert waits.result(60) == answer


def leads(manager):
    log = manager.log().rpartition(" of cluster test at ")[2]  # Of this life of it.
    return log.rfind("this manager leads term") > log.rfind("this manager leads no longer")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_another_manager_takes_over(expected, number):
    with cluster.Cluster(hosts=2, managers=2, device_extra=SLOW) as running:
        gateway = running.gateways[0]
        ready(gateway, len(running.models))
        (first,) = [manager for manager in running.managers if leads(manager)]
        (second,) = [manager for manager in running.managers if manager is not first]
        streams = {model: Stream(gateway, model, "1 2 3").began() for model in TALKERS}
        loads = sum(host.log().count("load model=") for host in running.hosts)
        first.signal(number)
        for model in TALKERS:
            prompt, answer = heddle.eval_set(model, 1)[0]
            assert gateway.chat(model, prompt) == answer
        assert leads(second)
        said = re.findall(r"manager is not linked .*?(why=.*)", gateway.log())
        # A reason may come again once a manager has led in between.
        assert len(said) <= 2 * len(set(said)), "what a manager that stands by says at each try is told once"
        assert {model: stream.text() for model, stream in streams.items()} == expected
        assert sum(host.log().count("load model=") for host in running.hosts) == loads, "what was there was taken up"
        if number == signal.SIGSTOP:
            first.signal(signal.SIGCONT)
            first.await_line("this manager leads no longer")
            assert gateway.chat("adder", heddle.eval_set("adder", 1)[0][0]) == heddle.eval_set("adder", 1)[0][1]


def followed(host):
    """The term of the manager that the host follows, or followed last."""
    return int(re.findall(r"manager leads .*term=(\d+)", host.log())[-1])


def test_a_registry_that_has_forgotten_terms_hears_of_them_from_hosts():
    """As one restored from a backup, where a manager's clock is behind besides: here hosts know a term far ahead."""
    ahead = 1_000_000
    with cluster.Cluster(hosts=2, managers=2, models=["adder"]) as running:
        gateway = running.gateways[0]
        ready(gateway, 1)
        (first,) = [manager for manager in running.managers if leads(manager)]
        for manager in running.managers:
            manager.stop()
        records = running.path / "registry/records"
        leader = [line for line in map(json.loads, records.read_text().splitlines()) if line.get("key") == "leader"][-1]
        record = json.loads(base64.b64decode(leader["value"]))
        record = {**record, "term": record["term"] + ahead, "beat": record["beat"] + 1}
        line = {**leader, "revision": json.loads(records.read_text().splitlines()[-1])["revision"] + 1}
        line["value"] = base64.b64encode(json.dumps(record).encode()).decode()
        records.write_text(records.read_text() + json.dumps(line, separators=(",", ":")) + "\n")
        first.restart()
        wait_until(lambda: all(followed(host) > record["term"] for host in running.hosts))
        known = max(map(followed, running.hosts))
        first.stop()
        shutil.rmtree(records.parent)
        first.restart()
        first.await_line("hosts follow later terms only")
        wait_until(lambda: all(followed(host) > known for host in running.hosts))
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert gateway.chat("adder", prompt) == answer


def forecast(gateway, model):
    return next(each for each in gateway.call("/api/forecasts")[2]["models"] if each["model"] == model)


def knows_the_past(gateway):
    """Whether a manager that has started nothing itself forecasts from loads. Its own would be none, which it gets right."""
    adder = forecast(gateway, "adder")
    return sum(adder["starts"].values()) == 0 and (adder["error"] or 0) > 0


def test_a_new_leader_forecasts_from_what_hosts_remember():
    planner = "planner: {window: 1s, day: 60s, period: 100ms}\n"
    with cluster.Cluster(hosts=2, managers=2, models=["adder", "morse"], extra=planner) as running:
        gateway = running.gateways[0]
        ready(gateway, len(running.models))
        (first,) = [manager for manager in running.managers if leads(manager)]
        (second,) = [manager for manager in running.managers if manager is not first]
        prompt, answer = heddle.eval_set("adder", 1)[0]
        deadline = time.monotonic() + 60
        while (forecast(gateway, "adder")["error"] or 0) == 0:
            assert time.monotonic() < deadline
            assert gateway.chat("adder", prompt) == answer
        first.kill()
        taken = r"took over past loads windows=(\d+) models=2 host=h\d"
        assert int(second.await_line(taken)) >= 4, "two windows of each model"
        wait_until(lambda: knows_the_past(gateway))
        assert forecast(gateway, "morse")["expected_peak"] == 0
        # The first one knows nothing any more, and the hosts only what the second one tells them.
        first.restart()
        for host in running.hosts:
            host.kill()
            host.restart()
            wait_until(lambda: all(device["up"] for device in gateway.call("/api/devices")[2]["devices"]))
        second.kill()
        first.await_line(taken)
        wait_until(lambda: knows_the_past(gateway))


def test_the_requests_of_a_gateway_that_dies_end_and_no_others(expected):
    with cluster.Cluster(hosts=2, gateways=2, device_extra=SLOW) as running:
        dies, stays = running.gateways
        for gateway in running.gateways:
            ready(gateway, len(running.models))
        doomed = [Stream(dies, model, "1 2 3") for model in TALKERS]
        streams = {model: Stream(stays, model, "1 2 3").began() for model in TALKERS}
        for stream in doomed:
            stream.began()
        dies.kill()
        assert {model: stream.text() for model, stream in streams.items()} == expected

        def running_requests():
            return sum(v for k, v in stays.metrics().items() if k.startswith("vllm:num_requests_running"))

        wait_until(lambda: running_requests() == 0)


class Joining(cluster.Cluster):
    """A cluster to which processes are added."""

    def registry(self):
        return f"  registry: \"file:{self.path}/registry\"\n"

    def add(self, node):
        self.ports[node.name] = cluster.free_port()
        self.certs("issue", str(self.path), "--role", node.role, "--name", node.name)
        (self.gateways if node.role == "gateway" else self.hosts).append(node)
        return node.start()


def heddle_cli(*arguments):
    done = subprocess.run([heddle.BINARY, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_hosts_and_gateways_join_and_leave(expected):
    with Joining(joining=True, hosts=0, gateways=0, device_extra=SLOW) as running:
        first = running.add(cluster.Node(running, "agent", "h1"))
        gateway = running.add(cluster.Gateway(running, "gateway", "g1"))
        gateway.await_url()
        ready(gateway, len(running.models))
        assert gateway.chat("adder", heddle.eval_set("adder", 1)[0][0]) == heddle.eval_set("adder", 1)[0][1]
        running.add(cluster.Node(running, "agent", "h2"))
        other = running.add(cluster.Gateway(running, "gateway", "g2"))
        other.await_url()

        def hosts(state):
            return sorted(h["name"] for h in other.call("/api/hosts")[2]["hosts"] if h["state"] == state)

        wait_until(lambda: hosts("here") == ["h1", "h2"])
        streams = {model: Stream(other, model, "1 2 3").began() for model in TALKERS}
        assert first.stop() == 0  # What it ran goes on, there or elsewhere.
        assert {model: stream.text() for model, stream in streams.items()} == expected
        wait_until(lambda: hosts("here") == ["h2"] and hosts("away") == [])
        devices = [device["name"] for device in other.call("/api/devices")[2]["devices"]]
        assert devices == ["h2/cpu0"], "a host that has left is not shown"
        first.restart()
        wait_until(lambda: hosts("here") == ["h1", "h2"])
        taken = subprocess.run(
            [heddle.BINARY, "agent", "--config", running.config_path("agent", "h1"), "--name", "h1", "--address", "nowhere"],
            capture_output=True, text=True, timeout=30,
        )
        assert taken.returncode == 1 and '--address is "nowhere"; want host:port' in taken.stderr
        status, out, _ = heddle_cli("hosts", "--url", other.url)
        assert status == 0 and "h1" in out and "here" in out


def test_a_configuration_is_applied_to_all_and_holds(expected):
    with cluster.Cluster(hosts=2, gateways=2, managers=2, models=["adder", "sorter"]) as running:
        one, other = running.gateways
        for gateway in running.gateways:
            ready(gateway, 2)
        path = running.path / "models.yaml"

        def apply(text, *more):
            path.write_text(text)
            return heddle_cli("apply", str(path), "--url", one.url, *more)

        def models(gateway):
            return sorted(model["id"] for model in gateway.call("/v1/models")[2]["data"])

        good = f"models:\n  morse: {{path: {heddle.MODELS / 'morse'}}}\n  sorter: {{path: {heddle.MODELS / 'sorter'}}}\n"
        status, _, said = apply("models:\n  morse: {pathh: x}\n")
        assert status == 1 and "pathh" in said
        status, _, said = apply(good + "planner: {window: 10m}\n")
        assert status == 1 and "`planner.window`" in said
        status, out, _ = apply(good, "--dry-run")
        assert status == 0 and "could be applied" in out
        assert models(other) == ["adder", "sorter"], "nothing was changed so far"
        assert apply(good)[0] == 0
        for gateway in running.gateways:
            wait_until(lambda g=gateway: models(g) == ["morse", "sorter"])
        prompt, answer = heddle.eval_set("morse", 1)[0]
        assert other.chat("morse", prompt) == answer
        (first,) = [manager for manager in running.managers if leads(manager)]
        first.kill()
        assert other.chat("morse", prompt) == answer
        first.restart()
        for gateway in running.gateways:
            assert models(gateway) == ["morse", "sorter"], "it holds for the next manager, too"
    with cluster.Cluster(hosts=1, models=["sorter"]) as alone:
        ready(alone.gateways[0])
        status, _, said = heddle_cli("apply", str(alone.config_path("", "")), "--url", alone.gateways[0].url)
        assert status == 1 and "without cluster.registry nothing can be applied" in said


def test_a_quota_holds_for_all_gateways_and_after_the_managers_death():
    keys = "apiKeys: [{key: one, tokens_per_minute: 60}]\n"
    header = {"Authorization": "Bearer one"}
    with cluster.Cluster(hosts=1, gateways=2, models=["adder"], extra=keys) as running:
        first, second = running.gateways
        for gateway in (first, second):
            wait_until(lambda gateway=gateway: gateway.call("/v1/models", headers=header)[2]["data"])

        def left(gateway):
            """Of the key's tokens; asking takes none."""
            _, headers, _ = gateway.call("/tokenize", {"model": "adder", "prompt": "1"}, headers=header)
            return int(headers["x-ratelimit-remaining-tokens"])

        def use(gateway):
            body = {"model": "adder", "prompt": "12+34=", "max_tokens": 12, "ignore_eos": True}
            assert gateway.call("/v1/completions", body, headers=header)[0] == 200

        def hears_of_use(told, used):
            """Nothing but what was used elsewhere leaves less than before."""
            seen = [left(told)]
            use(used)

            def lower():
                seen.append(left(told))
                return seen[-1] < max(seen)

            wait_until(lower)

        hears_of_use(second, first)
        running.managers[0].kill()
        running.managers[0].start()
        hears_of_use(first, second)


def test_a_key_finds_its_prefixes_through_every_gateway_and_no_other_key_does():
    keys = "apiKeys: [{key: one}, {key: two}]\n"
    with cluster.Cluster(hosts=1, gateways=2, models=["adder"], extra=keys) as running:

        def cached(gateway, key):
            body = {"model": "adder", "prompt": "1" * 200, "max_tokens": 1}
            status, _, answer = gateway.call("/v1/completions", body, headers={"Authorization": f"Bearer {key}"})
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"] if status == 200 else None

        first, second = running.gateways
        wait_until(lambda: cached(first, "one"))
        wait_until(lambda: cached(second, "two") == 0)
        assert cached(second, "one") > 0


def test_whoever_is_not_of_the_cluster_is_told_so():
    with cluster.Cluster(hosts=1) as running:
        ready(running.gateways[0])
        config = running.config_path("agent", "h1")

        def run(*arguments):
            done = subprocess.run([heddle.BINARY, *arguments], capture_output=True, text=True, timeout=30)
            return done.returncode, done.stderr

        status, said = run("agent", "--config", config, "--name", "h9")
        assert status == 1 and 'cluster.hosts has no "h9"; there are: h1' in said
        status, said = run("gateway", "--config", config, "--name", "g2")
        assert status == 1 and 'cluster.gateways has no "g2"; there are: g1' in said
        (running.path / "h1.crt").write_text((running.path / "m1.crt").read_text())
        (running.path / "h1.key").write_text((running.path / "m1.key").read_text())
        status, said = run("agent", "--config", config, "--name", "h1")
        assert status == 1 and 'is that of manager "m1" of cluster "test"; this process is agent "h1"' in said
