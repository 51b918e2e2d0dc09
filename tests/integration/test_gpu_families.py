"""Tiny random models of the families that have operations beside Llama's, on a GPU: the emulated driver's."""

import concurrent.futures

import lora
import pytest
import server as heddle
from goldens import PROMPT, complete, golden, greedy_of, tokens_of, with_words
from test_gpu import machine

IN_FLOAT32 = ("gemma2-f32", "gemma3-new-f32", "granite-f32", "olmo2-gqa-f32", "qwen3-5-f32")
WITH_EXPERTS = ("gpt-oss", "gpt-oss-mxfp4", "qwen3-5-moe")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("families")
    rows = [f"  {name}: {{path: {with_words(name, folder / name)}, dtype: float32}}\n" for name in IN_FLOAT32]
    rows += [f"  {name}: {{path: {with_words(name, folder / name)}}}\n" for name in WITH_EXPERTS]
    devices = "  - {kind: cuda, memory: 16MiB, page: 64KiB}\n"
    with heddle.Server(heddle.config(models=rows, devices=devices), env=machine()) as running:
        yield running


@pytest.mark.parametrize("name", IN_FLOAT32)
def test_greedy_text_in_float32_is_that_of_transformers(gpu, name):
    ids, greedy = golden(name)
    assert greedy_of(gpu, name, ids[:PROMPT], len(greedy)) == greedy


# GPUs have no experts in float32. Where bfloat16 and the reference part, two tokens are nearly as likely.
@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_experts_answer_as_transformers_does(gpu, name):
    ids, greedy = golden(name)
    answered = greedy_of(gpu, name, ids[:PROMPT], len(greedy))
    assert answered[:1] == greedy[:1]
    assert len(answered) == len(greedy)


def test_a_conversation_goes_on_from_the_state_that_it_left(gpu):
    ids, greedy = golden("qwen3-5-f32")
    turn = ids[:PROMPT] + greedy
    first = greedy_of(gpu, "qwen3-5-f32", turn, 40)
    said = complete(gpu, "qwen3-5-f32", turn + first, 8)
    assert said["usage"]["prompt_tokens_details"]["cached_tokens"] > len(turn)
    assert first + tokens_of(said) == greedy_of(gpu, "qwen3-5-f32", turn, 48)


def test_adapters_answer_as_merged_models_and_come_and_go_while_the_base_runs(tmp_path):
    base = heddle.MODELS / "reverser"
    tensors = lora.make(base, tmp_path / "first", seed=1)
    lora.make(base, tmp_path / "second", seed=2, rank=8)
    lora.merge(base, tensors, tmp_path / "merged")
    rows = [
        f"  reverser: {{path: {base}, dtype: float32, adapter_rank: 8}}\n",
        f"  first: {{base: reverser, adapter: {tmp_path / 'first'}}}\n",
        f"  merged: {{path: {tmp_path / 'merged'}, dtype: float32}}\n",
    ]
    devices = "  - {kind: cuda, memory: 16MiB, page: 64KiB}\n"
    text = heddle.config(models=rows, devices=devices, extra=f"adapters: {{directories: [{tmp_path}]}}\n")
    asked = [prompt for prompt, _ in heddle.eval_set("reverser", 2)]
    options = {"max_tokens": 8, "ignore_eos": True}
    with heddle.Server(text, env=machine()) as server:
        load = {"lora_name": "poet", "lora_path": "second", "base_model_name": "reverser"}
        assert server.call("/v1/load_lora_adapter", load)[0] == 200
        pairs = [(model, prompt) for prompt in asked for model in ("first", "merged", "reverser", "poet")]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            said = dict(zip(pairs, pool.map(lambda pair: server.chat(*pair, **options), pairs), strict=True))
        assert all(said["first", prompt] == said["merged", prompt] for prompt in asked)
        texts = {tuple(said[model, prompt] for prompt in asked) for model in ("first", "reverser", "poet")}
        assert len(texts) == 3
        (device,) = server.call("/api/devices")[2]["devices"]
        assert {"first", "poet"} <= {each["name"] for each in device["adapters"] if each["pages"] > 0}
        status, _, told = server.call("/v1/unload_lora_adapter", {"lora_name": "poet"})
        assert status == 200, told
        assert server.call("/v1/models/poet")[0] == 404
        assert server.chat("reverser", asked[0], **options) == said["reverser", asked[0]]
