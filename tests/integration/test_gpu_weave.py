"""KV of a model that lacks memory lies on another GPU, which runs its part of attention: two emulated GPUs."""

import concurrent.futures
import os
import signal
import time

import pytest
import server as heddle
from test_gpu import machine
from test_weave import COLD, HOT, OTHER, all_up, decided, guests, wait_for

# So many requests are asked at once, and the KV of their prompts alone is too much for the hot model's device. Answers
# are long enough that the device is not mostly reading prompts, as then it gets no guests. Short ones are asked where
# nothing is woven.
REQUESTS, TOKENS, SHORT = 8, 50, 16
# Of the host, where the cold model is, and of the hot model's device. A model that the host is to load needs 61.
PAGES = (62, 56)


def config(weave=True, kinds=("cuda", "cuda")):
    """Two devices that the weights of a model mostly fill. Nothing is cached, so that equal requests do the same work. In
    float32, as guests round otherwise and bfloat16 leaves ties."""
    models = [f"  {name}: {{path: {heddle.MODELS / name}, dtype: float32}}\n" for name in (HOT, COLD, OTHER)]
    rows = "".join(
        f"  - {{name: d{i}, kind: {kind}, memory: {PAGES[i] * 64}KiB, page: 64KiB, prefix_cache: 'off'}}\n"
        for i, kind in enumerate(kinds)
    )
    # With a share so small, no loan is given up for the sake of the host's own objective.
    woven = f"weave: {str(weave).lower()}, weave_share: 25%"
    planner = f"planner: {{{woven}, prewarm: false, replicas: false, pressure: false}}\n"
    return heddle.config(models=models, devices=rows, extra=planner)


def ask(server, model, number, tokens):
    """An answer's text, its tokens and their log probabilities."""
    letters = "".join(chr(97 + (number * 7 + k * k) % 26) for k in range(40))
    body = {"model": model, "prompt": f"reverse: {letters}", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    status, _, answer = server.call("/v1/completions", {**body, "logprobs": 1}, timeout=300)
    assert status == 200, answer
    told = answer["choices"][0]
    assert len(told["logprobs"]["tokens"]) == tokens
    return told["text"], told["logprobs"]["tokens"], told["logprobs"]["token_logprobs"]


def check(answers, alone):
    """The same tokens as those alone begin with, and log probabilities within what the sum of two parts may round
    otherwise."""
    for (text, tokens, logprobs), (text_alone, tokens_alone, logprobs_alone) in zip(answers, alone, strict=True):
        assert text_alone.startswith(text)
        assert tokens == tokens_alone[: len(tokens)]
        assert logprobs == pytest.approx(logprobs_alone[: len(tokens)], abs=1e-3)


def burst(server, meanwhile=lambda: None, tokens=TOKENS):
    """What so many requests for the hot model are answered, which are asked at once."""
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        asked = [pool.submit(ask, server, HOT, i, tokens) for i in range(REQUESTS)]
        meanwhile()
        return [each.result() for each in asked]


def in_use(server):
    return wait_for(lambda: guests(server), patience=60)


def layers(server, by):
    """Layers of steps with guests whose part was computed by the host, or by the hot device alone."""
    rows = server.metrics().items()
    return sum(value for name, value in rows if "guest_layers_total" in name and f'by="{by}"' in name)


def begin(server):
    """The cold model is on the first device, as it would not be if only the other one had started."""
    all_up(server)
    ask(server, COLD, 0, 4)


def check_pages(server):
    """Each page of both devices is free or held, once, when what the workers said of it last has come."""

    def pages():
        devices = server.call("/api/devices")[2]["devices"]
        held = [sum(kind["held"] for kind in device["pages"].values()) for device in devices]
        return [(device["pages_total"], device["pages_free"] + each) for device, each in zip(devices, held)]

    wait_for(lambda: pages() == [(each, each) for each in PAGES])


@pytest.fixture(scope="module")
def alone():
    """What the requests are answered where nothing is woven."""
    with heddle.Server(config(weave=False), env=machine(devices=2)) as server:
        begin(server)
        answers = burst(server)
        assert not decided(server, "lend")
        return answers


@pytest.fixture
def woven():
    with heddle.Server(config(), env=machine(devices=2)) as server:
        begin(server)
        yield server


def test_a_hot_model_has_guests_on_the_other_gpu_and_answers_the_same(woven, alone):
    check(burst(woven, lambda: in_use(woven)), alone)
    lent = decided(woven, "lend")
    assert lent[0]["model"] == HOT and "pages for KV" in lent[0]["why"]
    assert "guests are served" in woven.log()
    held = woven.metrics()
    assert any(name.startswith("heddle_pages_held{") and "kv_guest" in name for name in held)
    assert layers(woven, "host") > 0
    # What nobody uses comes home, and with it the memory: a model that needs it is loaded there.
    wait_for(lambda: not any(each["guests"] for each in woven.call("/api/devices")[2]["devices"]), patience=60)
    assert ask(woven, OTHER, 0, 4)
    assert "device lost" not in woven.log()


def test_a_load_has_the_memory_that_it_needs(woven, alone):
    def another_model():
        in_use(woven)
        assert ask(woven, OTHER, 0, 4)

    check(burst(woven, another_model), alone)
    assert "a model is loaded that needs the memory" in [each["why"] for each in decided(woven, "recall")]


def test_the_hosts_own_requests_have_their_memory_back(woven, alone):
    def cold_wants_it():
        in_use(woven)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: ask(woven, COLD, i, SHORT), range(8)))
        assert len(answers) == 8

    check(burst(woven, cold_wants_it), alone)
    own = ("requests of the device itself wait for memory", "the device's oldest request lacks memory")
    assert any(each["why"].endswith(own) for each in decided(woven, "recall"))


def test_a_host_that_is_killed_is_a_pause_and_its_next_life_serves(woven, alone):
    served = []

    def kill_the_host():
        place, _ = in_use(woven)
        os.kill(woven.workers()[place], signal.SIGKILL)
        all_up(woven)
        before = layers(woven, "host")
        wait_for(lambda: guests(woven) is None or layers(woven, "host") > before, patience=60)
        served.append(layers(woven, "host") - before)

    check(burst(woven, kill_the_host), alone)
    assert served[0] > 0, "the host's next life has the memory that its last one shared"


def test_a_frozen_host_is_gone_on_without(woven, alone):
    def freeze_the_host():
        place, _ = in_use(woven)
        host = woven.workers()[place]
        os.kill(host, signal.SIGSTOP)
        time.sleep(1)
        os.kill(host, signal.SIGCONT)

    check(burst(woven, freeze_the_host), alone)


def test_a_hot_worker_that_is_killed_gives_the_pages_back(woven, alone):
    def kill_the_hot_worker():
        place, _ = in_use(woven)
        os.kill(woven.workers()[1 - place], signal.SIGKILL)

    check(burst(woven, kill_the_hot_worker), alone)
    wait_for(lambda: not any(each["guests"] for each in woven.call("/api/devices")[2]["devices"]), patience=60)
    all_up(woven)
    check_pages(woven)
    assert "device lost" not in woven.log()


def test_the_answers_survive_both(woven, alone):
    def lose_both():
        in_use(woven)
        for worker in woven.workers():
            os.kill(worker, signal.SIGKILL)

    check(burst(woven, lose_both), alone)
    assert all_up(woven)


@pytest.mark.parametrize(
    "keys, says",
    [
        ({"peers": 0}, "d0 and d1: they have no access to each other's memory"),
        ({"flags": 0}, "d0 and d1: d0 has no stream memory operations"),
    ],
)
def test_gpus_that_cannot_are_named_once_and_go_on_alone(keys, says, alone):
    with heddle.Server(config(), env=machine(devices=2, **keys)) as server:
        begin(server)
        check(burst(server, tokens=SHORT), alone)
        assert not decided(server, "lend")
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "configuration reloaded" in server.log())
        assert server.log().count("GPUs do not lend memory to each other's KV") == 1
        assert says in server.log()


def test_a_gpu_and_cpus_do_not_weave():
    with heddle.Server(config(kinds=("cuda", "cpu")), env=machine()) as server:
        assert "planner.weave has no effect" in server.log()


@pytest.mark.parametrize(
    "worker, call, says",
    [
        (0, "cuMemExportToShareableHandle", "pages are not lent to guests"),
        (1, "cuMemImportFromShareableHandle", "pages for guests are of no use"),
    ],
)
def test_memory_that_cannot_be_shared_is_said_and_both_go_on(tmp_path, alone, worker, call, says):
    faults = tmp_path / "faults"
    # Over PCIe, so that nothing but guests is shared.
    env = {**machine(devices=2, peers=2), "HEDDLE_CUDA_EMULATOR_FAULTS": str(faults)}
    with heddle.Server(config(), env=env) as server:
        all_up(server)  # These have begun without faults.
        faults.write_text(f"{call} 1 801\n")
        os.kill(server.workers()[worker], signal.SIGKILL)  # Its next life has the fault.
        wait_for(lambda: not faults.exists())
        begin(server)
        check(burst(server), alone)
        assert says in server.log() and f"{call}: CUDA_ERROR_NOT_SUPPORTED" in server.log()
        wait_for(lambda: not any(each["guests"] for each in server.call("/api/devices")[2]["devices"]), patience=60)
        check_pages(server)
        assert "device lost" not in server.log()
