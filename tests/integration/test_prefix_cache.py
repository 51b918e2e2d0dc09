"""Conversations whose beginning is cached: told in usage and metrics, and never shared between
tenants."""

import json
import re
import time

import pytest
import server as heddle

MODEL = "adder"
TURN = "1+1= " * 40  # Many blocks of tokens, and well within the context.
KEYS = ["key-of-a", "key-of-b"]


@pytest.fixture(scope="module")
def server():
    extra = "apiKeys: [{key: key-of-a, role: admin}, key-of-b]\n"
    with heddle.Server(heddle.config(extra=extra)) as running:
        yield running


def complete(server, prompt, key=KEYS[0], path="/v1/completions", **options):
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 20, "temperature": 0, **options}
    status, _, answer = server.call(path, body, headers={"Authorization": f"Bearer {key}"})
    assert status == 200, answer
    return answer


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def metrics(server):
    status, _, text = server.call("/metrics", headers={"Authorization": f"Bearer {KEYS[0]}"})
    assert status == 200
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def eventually(holds):
    """Workers tell what they count after what they generate."""
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert holds()


def test_the_second_turn_computes_only_what_is_new(server):
    first = complete(server, TURN)
    assert cached(first) == 0
    said = first["choices"][0]["text"]
    second = complete(server, TURN + said + " 2+2=")
    prompt = second["usage"]["prompt_tokens"]
    # All but the last blocks of the first turn, its answer included.
    assert prompt - 40 <= cached(second) < prompt
    again = complete(server, TURN)
    assert again["choices"][0]["text"] == said


def test_answers_are_those_of_a_server_without_a_cache(server):
    prompts = [TURN + prompt for prompt, _ in heddle.eval_set(MODEL, 5)]
    options = {"temperature": 0.8, "seed": 7, "logprobs": 2}
    with heddle.Server(heddle.config(device_extra=", prefix_cache: off")) as plain:
        expected = [complete(plain, prompt, **options) for prompt in prompts]
    assert all(cached(answer) == 0 for answer in expected)
    for _ in range(2):
        got = [complete(server, prompt, **options) for prompt in prompts]
        assert [one["choices"] for one in got] == [one["choices"] for one in expected]
    assert all(cached(answer) > 0 for answer in got)


def test_nothing_is_shared_between_keys_or_salts(server):
    prompt = "7+7= " * 40
    assert cached(complete(server, prompt)) == 0
    assert cached(complete(server, prompt, key=KEYS[1])) == 0
    assert cached(complete(server, prompt, cache_salt="mine")) == 0
    assert cached(complete(server, prompt, cache_salt="mine", key=KEYS[1])) == 0
    assert cached(complete(server, prompt)) > 0
    assert cached(complete(server, prompt, cache_salt="mine")) > 0


def test_several_answers_compute_their_prompt_once(server):
    name = f'heddle_prefix_cache_hit_tokens_total{{device="cpu0",model_name="{MODEL}"}}'
    before = metrics(server).get(name, 0)
    answer = complete(server, "8+8= " * 40, n=4, max_tokens=2)
    prompt = answer["usage"]["prompt_tokens"]
    assert cached(answer) == 0  # A prompt counts once, and this one was computed.
    eventually(lambda: metrics(server)[name] - before >= 3 * (prompt - 40))


def test_metrics_and_requests_tell_what_was_found(server):
    complete(server, TURN)
    complete(server, TURN)
    labels = f'{{device="cpu0",model_name="{MODEL}"}}'

    def some_were_found():
        values = metrics(server)
        hit = values.get("heddle_prefix_cache_hit_tokens_total" + labels, 0)
        return 0 < hit < values["heddle_prefix_cache_queried_tokens_total" + labels]

    eventually(some_were_found)
    auth = {"Authorization": f"Bearer {KEYS[0]}"}
    _, _, traces = server.call("/api/requests", headers=auth)
    assert traces["requests"][0]["parts"][0]["cached_tokens"] > 0

    def all_is_cached():
        _, _, devices = server.call("/api/devices", headers=auth)
        pages = devices["devices"][0]["pages"]
        return pages["kv_cached"]["held"] > 0 and pages["kv_own"]["held"] == 0

    eventually(all_is_cached)


def test_a_cached_prefix_gives_way_to_other_models(server):
    """All models in turn, in a memory that does not hold them: loads take the pages of prefixes."""
    for _ in range(2):
        for model in heddle.demo_models():
            prompt, answer = heddle.eval_set(model, 1)[0]
            body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
            for n in range(6):
                filler = {"model": model, "prompt": f"{n} " + TURN, "max_tokens": 2}
                status, _, _ = server.call(
                    "/v1/completions", filler, headers={"Authorization": f"Bearer {KEYS[0]}"}
                )
                assert status == 200
            status, _, got = server.call(
                "/v1/chat/completions", body, headers={"Authorization": f"Bearer {KEYS[0]}"}
            )
            assert status == 200 and got["choices"][0]["message"]["content"] == answer
    closed = 'heddle_prefix_cache_evicted_pages_total{device="cpu0",reason="closed"}'
    eventually(lambda: metrics(server)[closed] > 0)


def test_kv_of_8_bits_holds_more_tokens_and_answers_alike():
    path = heddle.MODELS / MODEL
    types = {"wide": "auto", "narrow": "int8", "float": "fp8_e4m3"}
    rows = [f"  {name}: {{path: {path}, kv_cache_dtype: {kind}}}\n" for name, kind in types.items()]
    shape = json.loads((path / "config.json").read_text())
    width = shape["hidden_size"] // shape["num_attention_heads"]
    with heddle.Server(heddle.config(models=rows)) as server:
        right = dict.fromkeys(types, 0)
        for prompt, answer in heddle.eval_set(MODEL, 20):
            for model in right:
                body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
                status, _, got = server.call("/v1/chat/completions", body)
                assert status == 200, got
                right[model] += got["choices"][0]["message"]["content"] == answer
        assert min(right.values()) >= 19, right
        for turn in range(2):
            body = {"model": "narrow", "prompt": TURN, "max_tokens": 2}
            _, _, answer = server.call("/v1/completions", body)
            assert (cached(answer) > 0) == (turn == 1)
        tokens = {}
        for model in right:
            server.call("/v1/completions", {"model": model, "prompt": TURN, "max_tokens": 1})
            _, _, text = server.call("/metrics")
            size = re.search(rf'cache_config_info{{block_size="(\d+)",model_name="{model}"', text)
            tokens[model] = int(size[1])
        assert tokens["float"] == tokens["narrow"]
        assert tokens["narrow"] / tokens["wide"] == pytest.approx(2 * width / (width + 2), rel=0.02)
