"""Models with linear attention: tiny random ones, against what transformers says of them."""

import concurrent.futures
import json
import re
import subprocess
import time

import pytest
import server as heddle
from goldens import PROMPT, complete, golden, greedy_of, tokens_of, with_words


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hybrids")
    return {name: with_words(name, folder / name) for name in ("qwen3-next", "qwen3-5-f32", "qwen3-5-moe-images")}


def rows(directories, extra=""):
    return [f"  {name}: {{path: {path}, dtype: float32{extra}}}\n" for name, path in directories.items()]


def test_greedy_text_is_that_of_transformers(directories):
    with heddle.Server(heddle.config(models=rows(directories))) as server:
        for name in directories:
            ids, greedy = golden(name)
            assert greedy_of(server, name, ids[:PROMPT], len(greedy)) == greedy, name


def cached(answer):
    return answer["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0)


def hits(server):
    """Tokens that cached prefixes spared, by model."""
    _, _, text = server.call("/metrics")
    found = re.findall(r'^heddle_prefix_cache_hit_tokens_total{.*model_name="(.*?)".*} (\S+)$', text, re.MULTILINE)
    return {model: float(tokens) for model, tokens in found}


def eventually(holds):
    """Workers tell what they count after what they generate."""
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert holds()


def test_turns_go_on_from_where_the_last_one_ended(directories):
    off = ", prefix_cache: off"
    with (
        heddle.Server(heddle.config(models=rows(directories))) as server,
        heddle.Server(heddle.config(models=rows(directories), device_extra=off)) as plain,
    ):
        for name in directories:
            ids, _ = golden(name)
            prompt, found = ids[:20], []
            for turn in range(4):
                said, expected = (complete(which, name, prompt, 12) for which in (server, plain))
                assert tokens_of(said) == tokens_of(expected), (name, turn)
                assert cached(expected) == 0
                found.append((cached(said), len(prompt)))
                prompt = prompt + tokens_of(said) + ids[turn : turn + 3]
            assert found[0][0] == 0
            for have, tokens in found[1:]:
                assert tokens - 3 - 12 - 31 <= have < tokens, found  # Less than a block and what is new.
        eventually(lambda: len(hits(server)) == len(directories) and all(hits(server).values()))


def test_several_choices_compute_their_prompt_once(directories):
    with heddle.Server(heddle.config(models=rows(directories))) as server:
        ids, _ = golden("qwen3-5-f32")
        asked = {"model": "qwen3-5-f32", "prompt": ids[:60], "max_tokens": 4, "temperature": 1, "seed": 5}
        status, _, answer = server.call("/v1/completions", asked | {"n": 3})
        assert status == 200, answer
        assert len(answer["choices"]) == 3
        eventually(lambda: hits(server).get("qwen3-5-f32", 0) >= 2 * 32)


def test_a_chat_goes_on_after_its_model_was_away(directories):
    name = "qwen3-5-f32"
    ids, _ = golden(name)
    with heddle.Server(heddle.config(models=rows(directories)).replace("64MiB}", "64MiB, kv: 16MiB}")) as server:
        first = greedy_of(server, name, ids[:60], 4)
        status, _, answer = server.call("/models/unload", {"model": name})
        assert status == 200, answer
        again = complete(server, name, ids[:60], 4)
        assert tokens_of(again) == first
        assert cached(again) >= 32
        deadline = time.monotonic() + 20
        while server.call("/api/devices")[2]["devices"][0]["kv_store"]["returned_pages"] == 0:
            assert time.monotonic() < deadline, "no page is told to have come back"
            time.sleep(0.05)


# In the small memory a few sequences at once have their states and KV; the others wait, or are computed again.
def test_texts_do_not_depend_on_who_else_is_there(directories):
    ids, _ = golden("qwen3-5-f32")
    prompts = [ids[i : i + 20 + i] for i in range(12)]
    with heddle.Server(heddle.config(models=rows(directories))) as server:
        alone = [greedy_of(server, "qwen3-5-f32", prompt, 90) for prompt in prompts]
    with heddle.Server(heddle.config(memory="448KiB", page="16KiB", models=rows(directories)[1:2])) as server:
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            together = list(pool.map(lambda prompt: greedy_of(server, "qwen3-5-f32", prompt, 90), prompts))
        assert together == alone


def test_inspect_tells_of_states(directories):
    told = subprocess.run(
        [heddle.BINARY, "inspect", directories["qwen3-next"]], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
    assert "linear attention in 2 of 3 layers, 2 heads of 16 and 4 of 12 for values" in told.stdout
    assert "of state per sequence" in told.stdout


@pytest.mark.parametrize("way", ["tensor_parallel", "pipeline_parallel"])
def test_only_whole_models_run(directories, way):
    devices = "".join(f"  - {{name: cpu{i}, kind: cpu, memory: 4MiB, page: 64KiB}}\n" for i in range(2))
    models = rows({"qwen3-next": directories["qwen3-next"]}, f", {way}: 2")
    try:
        with heddle.Server(heddle.config(models=models, devices=devices)) as server:
            status, _, answer = server.call("/v1/completions", {"model": "qwen3-next", "prompt": [3], "max_tokens": 1})
            assert status >= 400
            told = json.dumps(answer) + server.log()
    except RuntimeError as refused:
        told = str(refused)
    assert "only whole models have linear attention" in told
