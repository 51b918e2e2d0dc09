"""KV that outlives the eviction of its model: conversations that come back are not computed again, their texts are the
same, and nobody else has any of it."""

import os
import shutil
import signal
import threading
import time

import pytest
import server as heddle

KEYS = ["key-of-a", "key-of-b"]
TURN = "1+1= " * 40  # Many blocks of tokens, and well within the context.
KEPT = 'heddle_kv_store_returned_tokens_total{device="cpu0",model_name="adder"}'


def config(kv="16MiB", memory="3MiB", **options):
    """Room for one model and some KV, so that each model that is asked for displaces the one before."""
    extra = "apiKeys: [{key: key-of-a, role: admin}, key-of-b]\n"
    text = heddle.config(memory=memory, extra=extra, **options)
    return text.replace("host: {memory: 64MiB}", f"host: {{memory: 64MiB, kv: {kv}}}")


@pytest.fixture(scope="module")
def server():
    with heddle.Server(config()) as running:
        yield running


@pytest.fixture(scope="module")
def plain():
    """The same without it."""
    with heddle.Server(config(kv="0")) as running:
        yield running


def complete(server, prompt, key=KEYS[0], model="adder", **options):
    body = {"model": model, "prompt": prompt, "max_tokens": 20, "temperature": 0, **options}
    status, _, answer = server.call("/v1/completions", body, headers=auth(key))
    assert status == 200, answer
    return answer


def auth(key=KEYS[0]):
    return {"Authorization": f"Bearer {key}"}


def text(answer):
    return answer["choices"][0]["text"]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def device(server):
    status, _, devices = server.call("/api/devices", headers=auth())
    assert status == 200
    return devices["devices"][0]


def metrics(server):
    _, _, shown = server.call("/metrics", headers=auth())
    rows = (line.rsplit(" ", 1) for line in shown.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def eventually(holds):
    """Workers tell what they count after what they generate."""
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert holds()


def evict(server, model="adder"):
    """Other models come in until this one has left."""
    for other in heddle.demo_models():
        if other != model:
            complete(server, "1 2 3", model=other, max_tokens=1)
        if all(one["model"] != model for one in device(server)["models"]):
            return
    raise AssertionError(f"{model} is still there")


def test_a_conversation_goes_on_where_it_was(server, plain):
    turns = {}
    for running in (server, plain):
        first = complete(running, TURN)
        evict(running)
        turns[running] = complete(running, TURN + text(first) + " 2+2=", logprobs=2)
    assert turns[server]["choices"] == turns[plain]["choices"]
    assert cached(turns[plain]) == 0
    prompt = turns[server]["usage"]["prompt_tokens"]
    assert prompt - 60 <= cached(turns[server]) < prompt
    eventually(lambda: metrics(server).get(KEPT, 0) >= cached(turns[server]))
    kept = device(server)["kv_store"]
    assert kept["kept_pages"] > 0 and kept["returned_pages"] > 0
    assert kept["pages"] == 16 * 16
    evict(server)
    eventually(lambda: 0 < device(server)["kv_store"]["held"] < kept["pages"])
    assert device(plain)["kv_store"]["pages"] == 0


def test_nobody_has_another_keys_conversation(server):
    prompt = "7+7= " * 40
    complete(server, prompt)
    evict(server)
    assert cached(complete(server, prompt, key=KEYS[1])) == 0
    evict(server)
    assert cached(complete(server, prompt, cache_salt="mine")) == 0
    assert cached(complete(server, prompt)) > 0


def test_what_is_kept_has_its_bound():
    with heddle.Server(config(kv="512KiB")) as small:
        for n in range(8):
            complete(small, f"{n}+1= " * 40)
            evict(small)
        eventually(lambda: device(small)["kv_store"]["displaced_pages"] > 0)
        kept = device(small)["kv_store"]
        assert kept["held"] <= kept["pages"] == 8
        assert cached(complete(small, "7+1= " * 40)) > 0, "the last stays longest"


def test_another_version_of_a_model_finds_nothing(tmp_path):
    path = tmp_path / "versions"
    shutil.copytree(heddle.MODELS / "adder", path)
    row = f"  adder: {{path: {path}}}\n"
    others = [name for name in heddle.demo_models() if name != "adder"]
    with heddle.Server(config(models=[row, *others])) as running:
        complete(running, TURN)
        evict(running)
        assert cached(complete(running, TURN)) > 0
        evict(running)
        another = tmp_path / "another"
        shutil.copytree(heddle.MODELS / "sorter", another)
        running.config_path.write_text(running.config_path.read_text().replace(str(path), str(another)))
        os.kill(running.process.pid, signal.SIGHUP)
        eventually(lambda: "reloaded" in running.log())
        assert cached(complete(running, TURN)) == 0


def test_a_worker_that_dies_takes_what_it_kept_along(server, plain):
    prompt = "9+9= " * 40
    expected = text(complete(plain, prompt))
    assert text(complete(server, prompt)) == expected
    evict(server)
    before = device(server)["restarts"]
    os.kill(server.workers()[0], signal.SIGKILL)
    eventually(lambda: device(server)["restarts"] > before and device(server)["up"])
    answer = complete(server, prompt)
    assert text(answer) == expected and cached(answer) == 0
    evict(server)
    assert cached(complete(server, prompt)) > 0, "its next life keeps KV again"


def test_preempted_requests_say_what_they_say_alone():
    """More KV than the device has, of requests that all run: some are preempted, and find what they had computed."""
    prompts = [f"{n}+{n}= " * 30 for n in range(10, 34)]
    options = {"max_tokens": 150, "ignore_eos": True}
    only = {"models": ["adder"], "memory": "2304KiB"}
    said = {}

    def ask(running, prompt):
        said[running, prompt] = text(complete(running, prompt, **options))

    with heddle.Server(config(**only)) as running, heddle.Server(config(kv="0", memory="32MiB")) as roomy:
        for prompt in prompts:
            ask(roomy, prompt)
        threads = [threading.Thread(target=ask, args=(running, prompt)) for prompt in prompts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [said[running, prompt] for prompt in prompts] == [said[roomy, prompt] for prompt in prompts]
        eventually(lambda: device(running)["kv_store"]["kept_pages"] > 0)
