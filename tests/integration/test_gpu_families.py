"""Tiny random models of the families that have operations beside Llama's, on a GPU: the emulated driver's."""

import pytest
import server as heddle
from goldens import PROMPT, golden, with_words
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


def complete(server, model, prompt, tokens):
    asked = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    status, _, answer = server.call("/v1/completions", asked)
    assert status == 200, answer
    return answer


def tokens_of(answer):
    return [int(word[1:]) for word in answer["choices"][0]["text"].split()]


def greedy_of(server, model, prompt, tokens):
    return tokens_of(complete(server, model, prompt, tokens))


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
