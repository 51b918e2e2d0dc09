"""External engines on several devices at once, beside engines on one of them."""

import concurrent.futures
import random
import subprocess

import engines
import pytest
import server as heddle

WHERE = {"left": ["gpu0"], "right": ["gpu1"], "wide": ["gpu0", "gpu1"]}
TURNS = 200


def config():
    """A heddle.yaml of two devices, neither of which has room for two engines that are awake."""
    rows = "".join(
        f"  {name}: {{cmd: '{engines.scripted(name, '--anonymous-mib 40')}', engine: vllm, suspend: [sleep], "
        f"memory: 60MiB, device: [{', '.join(devices)}], min_residence: 20ms}}\n"
        for name, devices in WHERE.items()
    )
    return f"""
listen: 127.0.0.1:0
startPort: {engines.free_port(3)}
devices: [{{name: gpu0, kind: external, memory: 96MiB}}, {{name: gpu1, kind: external, memory: 96MiB}}]
planner: {{drain_after: 200ms, prewarm: false}}
models:
{rows}"""


@pytest.fixture(scope="module")
def served():
    with heddle.Server(config()) as running:
        yield running


def ask(server, name, prompt="x"):
    answer = server.chat(name, prompt, max_tokens=5)
    assert answer.startswith(name + " heard "), answer
    return answer


def engine(server, name):
    _, _, answer = server.call("/api/engines")
    return next(each for each in answer["engines"] if each["model"] == name)


def devices(server):
    """What each device says of the models that it has."""
    _, _, answer = server.call("/api/devices")
    return {each["name"]: each for each in answer["devices"]}


def test_an_engine_is_on_all_its_devices_or_on_none(served):
    ask(served, "left")
    ask(served, "right")
    states = {name: engine(served, name)["state"] for name in WHERE}
    assert states["left"] == states["right"] == "running"
    ask(served, "wide")
    known = engine(served, "wide")
    assert known["devices"] == WHERE["wide"] and known["state"] == "running"
    assert known["reserved_bytes"] == 2 * (60 << 20)
    for each in devices(served).values():
        assert "wide" in [model["model"] for model in each["models"] if model["residency"] == "warm"]
    assert {engine(served, name)["state"] for name in ("left", "right")} == {"suspended"}
    shown = subprocess.check_output([heddle.BINARY, "ps", "--url", served.url], text=True)
    assert "gpu0+gpu1" in shown, shown


def test_they_take_turns_and_nothing_is_lost(served):
    rng = random.Random(7)
    names = list(WHERE)
    for turn in range(TURNS):
        ask(served, names[turn % 3] if turn < 90 else rng.choice(names), f"turn {turn}")
    for name in names:
        known = engine(served, name)
        assert (known["starts"], known["deaths"], known["trouble"]) == (1, 0, None), known
        (slept,) = [cost for cost in known["costs"] if cost["level"] == "sleep"]
        assert slept["failures"] == 0 and slept["insufficient"] == 0, known
        assert slept["times"] > TURNS // 8, known
    for name, each in devices(served).items():
        reserved = sum(
            engine(served, model)["reserved_bytes"] // len(where) for model, where in WHERE.items() if name in where
        )
        free = each["pages_free"] * each["page_bytes"]
        assert abs(96 * (1 << 20) - reserved - free) < 8 << 20, each


def test_asked_for_all_at_once_each_has_its_turn(served):
    with concurrent.futures.ThreadPoolExecutor(6) as clients:
        asked = [clients.submit(ask, served, name, f"{name} {i}") for i in range(25) for name in WHERE]
        for answer in asked:
            answer.result(120)
    explained = subprocess.check_output([heddle.BINARY, "explain", "--url", served.url, "wide"], text=True)
    assert "load" in explained, explained
    assert all(engine(served, name)["deaths"] == 0 for name in WHERE)


def test_config_check_shows_the_devices_and_refuses_what_cannot_be(tmp_path):
    def check(text):
        path = tmp_path / "heddle.yaml"
        path.write_text(text)
        ran = subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True, timeout=60)
        return ran.returncode, ran.stdout + ran.stderr

    status, output = check(config())
    assert status == 0 and "60.0 MiB of each of the devices gpu0+gpu1" in output, output
    assert "60.0 MiB of device gpu0" in output, output
    for wrong, problem in (("[gpu0, gpu7]", 'there is no "gpu7"'), ("[gpu0, gpu0]", 'names "gpu0" twice')):
        status, output = check(config().replace("[gpu0, gpu1]", wrong))
        assert status != 0 and problem in output, output
