"""External engines of a cluster's hosts, through gateways on other machines: what clients get while anything is killed."""

import concurrent.futures
import contextlib
import json
import os
import random
import re
import signal
import sys
import time
import urllib.request

import cluster
import engines
import server as heddle

ECHO = f"{sys.executable} {engines.HERE / 'echo.py'} ${{PORT}}"
TOKENS = 60  # Of an answer that runs while something is killed.
SLOW = "--token-ms 25"


def engine(name, options="", keys="memory: 40MiB"):
    """A row of the configuration. Where it listens is each host's own affair."""
    command = engines.scripted(name, options, port="${env.ENGINE_PORT}")
    return f"  {name}: {{cmd: '{command}', proxy: 'http://127.0.0.1:${{env.ENGINE_PORT}}', {keys}}}\n"


@contextlib.contextmanager
def started(models, hosts=1, memory="64MiB", **options):
    """A cluster whose hosts have engines at ports of their own, and whose models are known."""
    with contextlib.ExitStack() as stack:
        made = cluster.Cluster(hosts=hosts, memory=memory, models=models, **options)
        first = engines.free_port(hosts)
        for node in made.nodes():
            node.env["ENGINE_PORT"] = "1"
        for index, host in enumerate(made.hosts):
            host.env["ENGINE_PORT"] = str(first + index)
            host.engine = f"http://127.0.0.1:{first + index}"
        stack.enter_context(made)
        for gateway in made.gateways:
            wait_until(lambda: all_up(gateway) == hosts and len(gateway.call("/v1/models")[2]["data"]) == len(models))
        yield made


def all_up(gateway):
    """How many devices are; 0 where one is not."""
    devices = gateway.call("/api/devices")[2]["devices"]
    return len(devices) if all(device["up"] for device in devices) else 0


def wait_until(what, seconds=30):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def body_of(model, prompt="1 2 3", tokens=TOKENS, stream=False):
    return json.dumps({"model": model, "prompt": prompt, "max_tokens": tokens, "stream": stream}).encode()


def ask(url, body, path="/v1/completions"):
    """The bytes of an answer."""
    request = urllib.request.Request(url + path, body, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return answer.read()


class Asked:
    """A request that is answered in a thread; `parts` are the lines that have come."""

    def __init__(self, gateway, body):
        self.parts, self.error = [], None
        self._request = urllib.request.Request(gateway.url + "/v1/completions", body, {"Content-Type": "application/json"})
        self._read = concurrent.futures.ThreadPoolExecutor(1).submit(self._run)

    def _run(self):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self._request, timeout=60) as answer:
                for line in answer:
                    self.parts.append(line)
        except OSError as error:
            self.error = error

    def began(self):
        wait_until(lambda: len(self.parts) > 6 or self._read.done())
        assert not self._read.done(), (self.error, self.parts)
        return self

    def bytes(self):
        self._read.result(60)
        assert self.error is None, self.error
        return b"".join(self.parts)

    def failed(self):
        """Whether its client can tell that its stream is not whole."""
        self._read.result(60)
        return self.error is not None or b'"error"' in b"".join(self.parts) or self.parts[-2:] != [b"data: [DONE]\n", b"\n"]


def status(gateway, model):
    """What is said of the model's engine."""
    (found,) = [one for one in gateway.call("/api/engines")[2]["engines"] if one["model"] == model]
    return found


def host_of(running, model):
    """The host whose engine the model has."""
    engines = lambda: running.gateways[0].call("/api/engines")[2]["engines"]  # noqa: E731
    wait_until(lambda: any(one["model"] == model for one in engines()))  # Hosts tell of them now and then.
    wait_until(lambda: status(running.gateways[0], model)["state"] == "running")
    where = status(running.gateways[0], model)["device"]
    return next(host for host in running.hosts if where.startswith(host.name + "/"))


def pid_of(host):
    (pid,) = [int(pid) for pid in children(host.process.pid) if b"engine.py" in heddle_command(pid)]
    return pid


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        ours = file.read().split()
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
            ours += file.read().split()
    return sorted(set(ours))


def heddle_command(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def resident(node):
    with open(f"/proc/{node.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_two_gateways_pass_on_the_bytes_that_the_engine_sent():
    with started([engine("alpha")], hosts=2, gateways=2) as running:
        for stream in (False, True):
            body = body_of("alpha", stream=stream)
            got = [ask(gateway.url, body) for gateway in running.gateways]
            assert got == [ask(host_of(running, "alpha").engine, body)] * 2, got
            assert got[0].endswith(b"data: [DONE]\n\n") == stream
        for gateway in running.gateways:
            wait_until(lambda: status(gateway, "alpha")["state"] == "running")
            shown = status(gateway, "alpha")
            assert shown["starts"] == 1 and shown["reserved_bytes"] == 40 << 20, "one host has it, and only once"
            (device,) = [d for d in gateway.call("/api/devices")[2]["devices"] if d["name"] == shown["device"]]
            assert sum(kind["reserved"] for kind in device["pages"].values()) * 65536 >= 40 << 20, device
            assert b"/v1/completions" in ask(gateway.url, None, "/upstream/alpha/calls")
            assert gateway.call("/v1/models/nothing")[0] == 404


def test_large_bodies_go_both_ways_and_stay_nowhere():
    model = f"  echo: {{cmd: '{ECHO}', checkEndpoint: none, probe: false, memory: 40MiB}}\n"
    with started([model], extra=f"startPort: {engines.free_port()}\n") as running:
        gateway, host = running.gateways[0], running.hosts[0]
        body = random.Random(7).randbytes(8 << 20)

        def carry(count):
            for _ in range(count):
                assert ask(gateway.url, body, "/upstream/echo/x") == body

        carry(2)
        before = resident(gateway), resident(host)
        carry(6)

        def growth():
            return [now - then for now, then in zip((resident(gateway), resident(host)), before)]

        wait_until(lambda: max(growth()) < 6 << 20)  # What held the last body goes a moment later.


def test_an_engine_and_a_model_of_our_own_take_turns():
    with started([engine("alpha", keys="memory: 62MiB"), "adder"]) as running:
        gateway = running.gateways[0]
        question, answer = heddle.eval_set("adder", 1)[0]
        first = ask(gateway.url, body_of("alpha"))
        for _ in range(2):
            assert gateway.chat("adder", question) == answer
            wait_until(lambda: status(gateway, "alpha")["state"] in ("stopped", "suspended"))
            assert ask(gateway.url, body_of("alpha")) == first


def test_an_engine_that_is_killed_takes_only_what_it_had_begun_with_it():
    with started([engine("alpha", SLOW + " --first-token-ms 300")], gateways=2) as running:
        begun = Asked(running.gateways[0], body_of("alpha", stream=True)).began()
        waits = [Asked(gateway, body_of("alpha", "4 5 6")) for gateway in running.gateways]
        wait_until(lambda: b"4 5 6" in ask(running.hosts[0].engine, None, "/last_request"))
        os.kill(pid_of(running.hosts[0]), signal.SIGKILL)
        assert begun.failed()
        texts = [json.loads(asked.bytes())["choices"][0]["text"] for asked in waits]
        assert texts[0] == texts[1] and texts[0].startswith("alpha heard ")


def test_with_a_host_that_dies_requests_that_wait_go_to_another():
    with started([engine("alpha", SLOW + " --first-token-ms 300")], hosts=2, gateways=2) as running:
        begun = Asked(running.gateways[0], body_of("alpha", stream=True)).began()
        waits = [Asked(gateway, body_of("alpha", "4 5 6", stream=True)) for gateway in running.gateways]
        host = host_of(running, "alpha")
        wait_until(lambda: b"4 5 6" in ask(host.engine, None, "/last_request"))
        host.kill()
        assert begun.failed()
        (other,) = [one for one in running.hosts if one is not host]
        got = [asked.bytes() for asked in waits]
        assert got == [ask(other.engine, body_of("alpha", "4 5 6", stream=True))] * 2
        assert host_of(running, "alpha") is other
        host.start()
        wait_until(lambda: all_up(running.gateways[0]) == 2)
        assert status(running.gateways[0], "alpha")["device"].startswith(other.name), "it stays where it is"


def running_requests(gateway):
    return sum(v for k, v in gateway.metrics().items() if k.startswith("vllm:num_requests_running"))


def test_the_requests_of_a_gateway_that_dies_end_and_no_others():
    with started([engine("alpha", SLOW)], gateways=2) as running:
        dies, stays = running.gateways
        doomed = Asked(dies, body_of("alpha", "4 5 6", stream=True)).began()
        kept = Asked(stays, body_of("alpha", stream=True)).began()
        dies.kill()
        assert doomed.failed()
        assert kept.bytes() == ask(running.hosts[0].engine, body_of("alpha", stream=True))
        wait_until(lambda: running_requests(stays) == 0)


def test_a_manager_that_is_new_suspends_no_engine_under_its_requests():
    rows = [engine("alpha", SLOW, "memory: 62MiB, drain: 60s"), "adder"]
    with started(rows, managers=2) as running:
        gateway = running.gateways[0]
        (leads,) = [m for m in running.managers if m.log().count("this manager leads term")]
        streams = [Asked(gateway, body_of("alpha", stream=True)).began() for _ in range(2)]
        leads.kill()
        question, answer = heddle.eval_set("adder", 1)[0]
        assert gateway.chat("adder", question) == answer
        assert all(len(stream.parts) > 2 * TOKENS for stream in streams), "both had ended before the engine left"
        (whole,) = {stream.bytes() for stream in streams}
        shown = status(gateway, "alpha")
        assert shown["starts"] == 1 and shown["deaths"] == 0
        told = ask(gateway.url, body_of("alpha", stream=True))
        assert re.sub(rb"(?m)^:.*\n\n", b"", told) == whole, "it may have waited, which comments tell"


def test_an_engine_that_is_taken_out_while_nobody_leads_is_ended():
    rows = [engine("gone"), f"  adder: {{path: {heddle.MODELS / 'adder'}}}\n"]
    prompt, answer = heddle.eval_set("adder", 1)[0]
    with started(rows) as running:
        gateway, manager, host = running.gateways[0], running.managers[0], running.hosts[0]
        assert ask(gateway.url, body_of("gone", tokens=3))
        manager.kill()
        text = (running.path / "heddle.yaml").read_text()
        (running.path / "heddle.yaml").write_text(text.replace(rows[0], ""))
        manager.restart()
        host.await_line("engine is ended model=gone")
        assert gateway.chat("adder", prompt) == answer


def test_an_engine_is_there_before_the_window_in_which_it_is_expected():
    window, days = 3, 12
    planner = f"planner: {{window: {window}s, day: {engines.QUARTERS * window}s, period: 100ms}}\n"
    with started([engine("beta", keys="memory: 40MiB, ttl: 2")], extra=planner) as running:
        gateway = running.gateways[0]

        def known():
            (found,) = gateway.call("/api/forecasts")[2]["models"]
            return found

        for _ in range(days):
            while (int(time.time() // window) + 1) % engines.QUARTERS:
                time.sleep(window / 2)
            time.sleep(window - time.time() % window + 0.2)
            assert b"beta heard" in ask(gateway.url, body_of("beta", tokens=5))
            if known()["starts"]["hit"] > 0:
                break
        assert known()["starts"]["hit"] > 0 and known()["loads"]["forecast"] > 0
        (first, *_) = [one for one in gateway.call("/api/decisions")[2]["decisions"] if one["decision"] == "prewarm"]
        assert first["model"] == "beta" and "it is started" in first["why"]
