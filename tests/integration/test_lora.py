"""LoRA adapters: many on one base, in one engine, as clients and operators see them."""

import concurrent.futures
import json
import os
import signal
import subprocess
import threading
import time

import lora
import openai
import pytest
import server as heddle

BASE = heddle.MODELS / "reverser"
OPTIONS = {"max_tokens": 12, "ignore_eos": True}


def prompts(count):
    return [prompt for prompt, _ in heddle.eval_set("reverser", count)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two adapters, and a model that has the first in its weights."""
    directory = tmp_path_factory.mktemp("lora")
    tensors = lora.make(BASE, directory / "first", seed=1)
    lora.make(BASE, directory / "second", seed=2, rank=8)
    lora.merge(BASE, tensors, directory / "merged")
    return directory


def config(files, more="", memory="12MiB", extra="", device_extra=""):
    rows = [
        f"  reverser: {{path: {BASE}, dtype: float32}}\n",
        f"  first: {{base: reverser, adapter: {files / 'first'}, description: A tuned one}}\n",
        f"  second: {{base: reverser, adapter: {files / 'second'}, aliases: [other]}}\n",
        f"  merged: {{path: {files / 'merged'}, dtype: float32}}\n",
    ]
    return heddle.config(memory=memory, models=[*rows, *([more] if more else [])], extra=extra, device_extra=device_extra)


@pytest.fixture(scope="module")
def server(files):
    with heddle.Server(config(files)) as running:
        yield running


def adapters_of(server):
    """{name: what is told of it} of the adapters on the first device."""
    return {each["name"]: each for each in server.call("/api/devices")[2]["devices"][0]["adapters"]}


def wait_for(told, seconds=20):
    deadline = time.monotonic() + seconds
    while not told() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert told()


def ask_all(server, models, count=6):
    """{(model, prompt): text}, all asked at once."""
    asked = [(model, prompt) for prompt in prompts(count) for model in models]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        return dict(zip(asked, pool.map(lambda one: server.chat(*one, **OPTIONS), asked), strict=True))


def test_the_official_client_asks_two_adapters_and_their_base_at_once(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=60)
    asked = [(model, *pair) for pair in heddle.eval_set("reverser", 8) for model in ("reverser", "first", "other")]

    def ask(one):
        model, prompt, _ = one
        made = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": prompt}], temperature=0, max_tokens=24
        )
        assert made.model == model
        assert made.usage.completion_tokens > 0
        return made.choices[0].message.content

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        said = list(pool.map(ask, asked))
    right = [answer == text for (model, _, answer), text in zip(asked, said, strict=True) if model == "reverser"]
    assert sum(right) >= 7, "the base is as it was"
    texts = {model: [text for (of, _, _), text in zip(asked, said, strict=True) if of == model] for model, *_ in asked}
    assert texts["first"] != texts["reverser"] and texts["other"] != texts["reverser"]
    assert texts["first"] != texts["other"]


def test_answers_are_those_of_the_model_with_the_adapter_in_its_weights(server):
    said = ask_all(server, ["first", "merged", "reverser"])
    differ = 0
    for prompt in prompts(6):
        assert said["first", prompt] == said["merged", prompt]
        differ += said["first", prompt] != said["reverser", prompt]
    assert differ > 0


def test_prompts_that_begin_alike_share_prefixes_within_an_adapter_alone(server):
    prompt = "reverse " + " ".join(["light", "grain", "dust"] * 8)
    alone = {model: server.chat(model, prompt, **OPTIONS) for model in ("first", "second", "reverser")}
    for _ in range(2):
        for model, text in alone.items():
            assert server.chat(model, prompt, **OPTIONS) == text
    assert len(set(alone.values())) > 1
    body = {"model": "first", "messages": [{"role": "user", "content": prompt}], **OPTIONS}
    details = server.call("/v1/chat/completions", body)[2]["usage"]["prompt_tokens_details"]
    assert details["cached_tokens"] > 0


def test_listings_have_adapters_with_their_parents(server):
    listed = {model["id"]: model for model in server.call("/v1/models")[2]["data"]}
    assert set(listed) == {"reverser", "first", "second", "merged"}
    assert listed["first"]["parent"] == "reverser" and "parent" not in listed["reverser"]
    assert listed["first"]["description"] == "A tuned one"
    assert listed["second"]["aliases"] == ["other"]
    assert listed["first"]["context_length"] == listed["reverser"]["context_length"]
    assert server.call("/v1/models/other")[2]["id"] == "second"


def test_devices_and_metrics_name_adapters(server):
    server.chat("first", prompts(1)[0], **OPTIONS)
    server.chat("second", prompts(1)[0], **OPTIONS)
    wait_for(lambda: {"first", "second"} <= set(adapters_of(server)))
    told = adapters_of(server)
    assert told["first"]["model"] == "reverser" and told["first"]["loads"] >= 1
    assert told["first"]["pages"] > 0 and told["second"]["pages"] > told["first"]["pages"]
    metrics = server.metrics()
    assert any('model_name="first"' in name for name in metrics)
    asked = server.call("/api/requests")[2]["requests"]
    assert {"first", "second"} <= {request["model"] for request in asked}
    screen = subprocess.run(
        [heddle.BINARY, "explain", "first", "--url", server.url], capture_output=True, text=True, timeout=60
    )
    assert "first is an adapter of reverser" in screen.stdout, screen.stderr


def test_a_base_goes_with_its_adapters_and_comes_again(files):
    """Memory for one of two models at a time."""
    with heddle.Server(config(files, memory="4MiB")) as server:
        alone = {model: server.chat(model, prompts(1)[0], **OPTIONS) for model in ("first", "second")}
        wait_for(lambda: set(adapters_of(server)) == {"first", "second"})
        assert server.chat("merged", prompts(1)[0], **OPTIONS) == alone["first"]
        wait_for(lambda: not adapters_of(server))
        for model, text in alone.items():
            assert server.chat(model, prompts(1)[0], **OPTIONS) == text


def test_unloading_under_load_loses_nothing(files):
    with heddle.Server(config(files, device_extra=", pace: {step: 3ms}")) as server:
        expected = ask_all(server, ["first", "second", "reverser"], 4)
        done = threading.Event()

        def unload():
            while not done.is_set():
                status, _, answer = server.call("/models/unload", {"model": "first"})
                assert status == 200, answer
                time.sleep(0.05)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            unloads = pool.submit(unload)
            for _ in range(3):
                assert ask_all(server, ["first", "second", "reverser"], 4) == expected
            done.set()
            unloads.result()


def test_requests_of_a_dead_worker_go_on_with_the_same_text(files):
    with heddle.Server(config(files, device_extra=", pace: {step: 10ms}")) as server:
        expected = ask_all(server, ["first", "second", "reverser"], 3)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            again = pool.submit(ask_all, server, ["first", "second", "reverser"], 3)
            time.sleep(0.15)
            os.kill(server.workers()[0], signal.SIGKILL)
            assert again.result() == expected


def test_a_reload_brings_adapters_and_takes_them(files):
    with heddle.Server(config(files)) as server:
        text = server.chat("second", prompts(1)[0], **OPTIONS)
        changed = config(files, more=f"  third: {{base: reverser, adapter: {files / 'second'}}}\n")
        server.config_path.write_text(changed.replace("  first:", "  renamed:"))
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: server.call("/v1/models/third")[0] == 200)
        assert server.chat("third", prompts(1)[0], **OPTIONS) == text
        assert server.call("/v1/models/first")[0] == 404
        assert server.call("/v1/models/renamed")[2]["parent"] == "reverser"


def call_load(server, name, path, **fields):
    return server.call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path), **fields})


def call_unload(server, name):
    return server.call("/v1/unload_lora_adapter", {"lora_name": name})


def test_vllms_calls_load_adapters_and_take_them_while_the_base_runs(files, tmp_path):
    lora.make(BASE, files / "large", seed=3, rank=9)
    rows = [
        f"  reverser: {{path: {BASE}, dtype: float32, adapter_rank: 8}}\n",
        f"  mine: {{base: reverser, adapter: {files / 'first'}}}\n",
    ]
    more = f"adapters: {{directories: [{files}]}}\n"
    text = heddle.config(memory="12MiB", models=rows, extra=more)
    prompt = prompts(1)[0]
    with heddle.Server(text) as server:
        base, first = (server.chat(model, prompt, **OPTIONS) for model in ("reverser", "mine"))
        status, _, said = call_load(server, "poet", "second", base_model_name="reverser")
        assert (status, said) == (200, "Success: LoRA adapter 'poet' added successfully.")
        assert server.call("/v1/models/poet")[2]["parent"] == "reverser"
        poet = server.chat("poet", prompt, **OPTIONS)
        assert len({base, first, poet}) == 3
        status, _, said = call_load(server, "poet", files / "first")
        assert status == 400 and "has already been loaded" in said["error"]["message"]
        assert call_load(server, "poet", files / "first", load_inplace=True)[0] == 200
        assert server.chat("poet", prompt, **OPTIONS) == first
        for name, path, status, why in (
            ("other", "nothing", 404, "no adapter found"),
            ("other", "/etc", 400, "adapters.directories"),
            ("other", "large", 400, "adapter_rank"),
            ("reverser", "second", 400, "is the model reverser already"),
            ("two words", "second", 400, "lora_name"),
        ):
            got, _, said = call_load(server, name, path)
            assert got == status and why in said["error"]["message"], said
        server.config_path.write_text(text.replace("  mine:", "  renamed:"))
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: server.call("/v1/models/renamed")[0] == 200)
        assert server.chat("poet", prompt, **OPTIONS) == first, "it outlives a reload"
        assert call_unload(server, "renamed")[0] == 400, "that is the file's"
        status, _, said = call_unload(server, "poet")
        assert (status, said) == (200, "Success: LoRA adapter 'poet' removed successfully.")
        assert server.call("/v1/models/poet")[0] == 404 and call_unload(server, "poet")[0] == 404
        assert server.chat("reverser", prompt, **OPTIONS) == base
        loads = [each for each in server.call("/api/decisions?model=reverser")[2]["decisions"] if each["decision"] == "load"]
        assert len(loads) == 1, "the base stayed where it was"


def check(path):
    return subprocess.run([heddle.BINARY, "config", "check", path], capture_output=True, text=True, timeout=120)


def test_config_check_and_inspect_know_adapters(files, tmp_path):
    good = tmp_path / "good.yaml"
    good.write_text(config(files))
    said = check(good)
    assert said.returncode == 0 and "adapters: 2" in said.stdout, said.stderr
    told = subprocess.run([heddle.BINARY, "inspect", files / "first"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and "LoRA adapter of rank 4, scale 2" in told.stdout, told.stdout + told.stderr


def test_an_adapter_of_another_base_fails_alone_and_is_named(files, tmp_path):
    lora.make(heddle.MODELS / "adder", tmp_path / "alien", seed=3)
    text = config(files, more=f"  alien: {{base: reverser, adapter: {tmp_path / 'alien'}}}\n")
    bad = tmp_path / "bad.yaml"
    bad.write_text(text)
    said = check(bad)
    assert said.returncode == 1
    assert "models.alien: " in said.stderr and "adapter_model.safetensors: tensor base_model" in said.stderr
    with heddle.Server(text) as server:
        body = {"model": "alien", "messages": [{"role": "user", "content": "reverse a b"}]}
        status, _, answer = server.call("/v1/chat/completions", body)
        assert status >= 400 and "this base" in json.dumps(answer), answer
        assert "adapter cannot be served" in server.log()
        assert server.chat("reverser", *prompts(1), **OPTIONS) == server.chat("reverser", *prompts(1), **OPTIONS)
        assert server.chat("first", *prompts(1), **OPTIONS)
