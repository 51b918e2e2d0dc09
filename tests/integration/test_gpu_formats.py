"""Models in their files' formats, and mixtures of experts, on a GPU: the emulated driver's."""

import json
import pathlib
import re
import sys

import pytest
import server as heddle
from test_gpu import EMULATOR, machine

sys.path.insert(0, str(heddle.ROOT / "tests/engines"))
import gguf  # noqa: E402: tests/engines/gguf.py
import packed  # noqa: E402: tests/engines/packed.py

KINDS = [kind for kind in packed.CONFIGS if kind != "gptq"]
FILES = ["llama", "mixtral", "qwen2moe", "qwen3moe"]
KV = ["int8", "fp8"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Models of a heddle.yaml."""
    folder = tmp_path_factory.mktemp("formats")
    made = ["adder"]
    for kind in packed.CONFIGS:
        packed.write(heddle.MODELS / "adder", folder / kind, kind)
        made.append(f"  {kind}: {{path: {folder / kind}}}\n")
    gguf.write(heddle.MODELS / "sorter", folder / "sorter.gguf", gguf.Q8_0)
    made += ["sorter", f"  sorter-gguf: {{path: {folder / 'sorter.gguf'}}}\n"]
    made += [f"  {name}: {{path: {heddle.ROOT}/tests/golden/gguf/{name}.gguf}}\n" for name in FILES]
    made += [f"  kv-{kv}: {{path: {heddle.MODELS / 'adder'}, kv_cache_dtype: {kv}}}\n" for kv in KV]
    return made


@pytest.fixture(scope="module")
def gpu(rows):
    devices = "  - {kind: cuda, memory: 48MiB, page: 64KiB}\n"
    with heddle.Server(heddle.config(models=rows, devices=devices), env=machine(memory="128MiB")) as running:
        yield running


def image_bytes(server, model):
    """Of a model's weights on its device."""
    (found,) = {
        value
        for name, value in server.metrics().items()
        if name.startswith("heddle_model_image_bytes{") and f'"{model}"' in name
    }
    return found


# The numbers were rounded with no care for what they add up to, so that some sums are lost.
@pytest.mark.parametrize("kind", packed.CONFIGS)
def test_a_quantised_model_knows_its_trade(gpu, kind):
    cases = heddle.eval_set("adder", 16)
    right = sum(gpu.chat(kind, prompt) == answer for prompt, answer in cases)
    assert right >= 13, f"{right} of {len(cases)}"


def test_a_file_of_8_bit_blocks_knows_its_trade(gpu):
    cases = heddle.eval_set("sorter", 8)
    right = 0
    for prompt, answer in cases:
        asked = {"model": "sorter", "messages": [{"role": "user", "content": prompt}]}
        tokens = gpu.call("/tokenize", asked)[2]["tokens"]
        body = {"model": "sorter-gguf", "prompt": tokens, "temperature": 0, "max_tokens": 64}
        right += gpu.call("/v1/completions", body)[2]["choices"][0]["text"] == answer
    assert right >= 7, f"{right} of {len(cases)}"


def test_four_bits_stay_four_and_eight_stay_eight(gpu):
    for kind in packed.CONFIGS:
        gpu.chat(kind, "1+1=", max_tokens=1)
    sizes = {kind: image_bytes(gpu, kind) for kind in packed.CONFIGS}
    plain = sizes["gptq"]  # In bfloat16.
    assert all(sizes[kind] < 0.67 * plain for kind in KINDS), sizes
    assert sizes["compressed"] < sizes["awq"] < sizes["fp8"] < sizes["gptq8"], sizes


# The last prompt is asked twice: then its KV is cached.
@pytest.mark.parametrize("kv", KV)
def test_a_model_over_kv_of_8_bits_knows_its_trade(gpu, kv):
    cases = heddle.eval_set("adder", 4)
    right = [gpu.chat(f"kv-{kv}", prompt) == answer for prompt, answer in [*cases, cases[-1]]]
    assert sum(right[:4]) >= 3 and right[4] == right[3], right


def test_kv_of_8_bits_takes_half_of_the_pages(gpu):
    for name in ["adder", *(f"kv-{kv}" for kv in KV)]:
        gpu.chat(name, "1+1=", max_tokens=1)
    size = re.compile(r'vllm:cache_config_info.block_size="(\d+)",model_name="([^"]+)"')
    tokens = {found[2]: int(found[1]) for found in map(size.match, gpu.metrics()) if found}
    assert tokens["kv-int8"] == tokens["kv-fp8"] == pytest.approx(tokens["adder"] * 64 / 34, rel=0.03), tokens


def fp8_server(rows, **keys):
    """With FP8 inputs in steps of more than eight tokens: prompts."""
    devices = "  - {kind: cuda, memory: 16MiB, page: 64KiB}\n"
    library = str(pathlib.Path(EMULATOR).parent / "libheddle_cublaslt_emulator.so")
    tuned = {"HEDDLE_CUBLASLT": library, "HEDDLE_TUNE_UNPACKED_TOKENS": "8"}
    return heddle.Server(heddle.config(models=rows, devices=devices), env={**machine(memory="64MiB", **keys), **tuned})


@pytest.fixture(scope="module")
def both_sides(tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    made = []
    for kind in packed.BOTH:
        packed.write(heddle.MODELS / "adder", folder / kind, kind)
        made.append(f"  {kind}: {{path: {folder / kind}}}\n")
        made.append(f"  {kind}-plain: {{path: {folder / kind}, activation_dtype: bfloat16}}\n")
    with fp8_server(made) as running:
        yield running


SAID = "products of many tokens are in FP8 on both sides"


def test_prompts_of_fp8_are_fp8_on_both_sides_unless_configured_otherwise(both_sides):
    prompt = heddle.eval_set("adder", 1)[0][0]
    first = {}
    for model in [*(f"{kind}-plain" for kind in packed.BOTH), *packed.BOTH]:
        if model == "fp8row":
            assert SAID not in both_sides.log()
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 1, "logprobs": True}
        status, _, answer = both_sides.call("/v1/chat/completions", {**body, "temperature": 0})
        assert status == 200, answer
        assert answer["usage"]["prompt_tokens"] > 8
        first[model] = answer["choices"][0]["logprobs"]["content"][0]["logprob"]
    assert SAID in both_sides.log()
    for kind in packed.BOTH:
        assert first[kind] != first[f"{kind}-plain"], "inputs were rounded"
        assert first[kind] == pytest.approx(first[f"{kind}-plain"], abs=0.3)


def test_a_gpu_without_products_of_fp8_takes_inputs_as_they_are(tmp_path):
    packed.write(heddle.MODELS / "adder", tmp_path / "fp8row", "fp8row")
    with fp8_server([f"  fp8row: {{path: {tmp_path / 'fp8row'}}}\n"], capability=86) as running:
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert running.chat("fp8row", prompt) == answer
        assert SAID not in running.log()
        assert "cuBLASLt has no products of FP8 here" in running.log()


@pytest.mark.parametrize("kind", packed.BOTH)
def test_a_model_with_fp8_on_both_sides_knows_its_trade(both_sides, kind):
    cases = heddle.eval_set("adder", 6)
    right = sum(both_sides.chat(kind, prompt) == answer for prompt, answer in cases)
    assert right >= 5, f"{right} of {len(cases)}"


# What these files' numbers say in float32 is llama.cpp's.
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_k_blocks_says_nearly_what_its_numbers_say(gpu, name):
    golden = json.loads((heddle.ROOT / f"tests/golden/gguf/{name}.json").read_text())
    for length, wanted in zip(golden["prefixes"], golden["of_numbers"]):
        body = {"model": name, "prompt": golden["ids"][:length], "max_tokens": 1, "logprobs": 5, "ignore_eos": True}
        status, _, answer = gpu.call("/v1/completions", body)
        assert status == 200, answer
        found = answer["choices"][0]["logprobs"]["top_logprobs"][0].values()
        assert max(found) == pytest.approx(wanted[0][1], abs=0.06)


def test_experts_in_float32_are_refused_with_the_reason():
    row = f"  moe: {{path: {heddle.ROOT}/tests/golden/gguf/qwen3moe.gguf, dtype: float32}}\n"
    devices = "  - {kind: cuda, memory: 48MiB, page: 64KiB}\n"
    with heddle.Server(heddle.config(models=[row], devices=devices), env=machine(memory="128MiB")) as running:
        status, _, answer = running.call("/v1/completions", {"model": "moe", "prompt": [5, 6], "max_tokens": 1})
        assert status >= 400
        assert "models with experts in float32 or int8 run on devices of kind cpu so far" in answer["error"]["message"]
