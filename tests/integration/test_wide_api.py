"""The wider API with the official client, against the real server. The demo models barely speak, so what
they say is held in shape by grammars, which work with any weights."""

import json
import math
import re

import openai
import pytest
import server as heddle

MODEL = heddle.demo_models()[0]


def user(text):
    return [{"role": "user", "content": text}]


def ask(client, **options):
    request = {"model": MODEL, "messages": user("1+1="), "max_tokens": 400, "temperature": 0.5, "seed": 3}
    return client.chat.completions.create(**{**request, **options})


# --- log probabilities ---


def test_chat_logprobs_belong_to_the_text_and_to_the_choice(client):
    prompt, answer = heddle.eval_set(MODEL, 1)[0]
    got = ask(client, messages=user(prompt), temperature=0, logprobs=True, top_logprobs=3)
    content = got.choices[0].logprobs.content
    assert b"".join(bytes(one.bytes) for one in content).decode() == got.choices[0].message.content == answer
    for one in content:
        assert one.logprob <= 0 and len(one.top_logprobs) == 3
        assert one.token == one.top_logprobs[0].token  # Greedy: the likeliest was taken.
        assert one.logprob == one.top_logprobs[0].logprob
        assert sum(math.exp(top.logprob) for top in one.top_logprobs) <= 1.0001


def test_streamed_logprobs_are_those_of_the_whole_answer(client):
    options = {"logprobs": True, "top_logprobs": 2, "max_tokens": 20}
    whole = ask(client, **options).choices[0].logprobs.content
    streamed = []
    for chunk in ask(client, stream=True, **options):
        if chunk.choices and chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert streamed == whole


def test_completion_logprobs_are_parallel_lists(client):
    got = client.completions.create(model=MODEL, prompt="1", max_tokens=5, temperature=0, logprobs=2)
    logprobs = got.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)
    assert all(len(top) <= 2 and token in top for token, top in zip(logprobs.tokens, logprobs.top_logprobs))


# --- structured outputs ---

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8, "pattern": "^[a-z]+$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "pets": {"type": "array", "items": {"enum": ["cat", "dog"]}, "maxItems": 2},
    },
    "required": ["name", "age", "pets"],
    "additionalProperties": False,
}


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "thing", "strict": True, "schema": schema}}


@pytest.mark.parametrize("seed", range(5))
def test_a_json_schema_holds_whatever_the_model_wants(client, seed):
    got = ask(client, response_format=schema_format(PERSON), seed=seed, temperature=1)
    assert got.choices[0].finish_reason == "stop"
    person = json.loads(got.choices[0].message.content)
    assert set(person) == {"name", "age", "pets"}
    assert re.fullmatch("[a-z]{1,8}", person["name"]) and 0 <= person["age"] <= 120
    assert len(person["pets"]) <= 2 and set(person["pets"]) <= {"cat", "dog"}


def test_choice_regex_and_grammar(client):
    for seed in range(4):
        got = ask(client, seed=seed, extra_body={"guided_choice": ["yes, indeed", "no"]})
        assert got.choices[0].message.content in ["yes, indeed", "no"]
        got = ask(client, seed=seed, extra_body={"structured_outputs": {"regex": "[0-9]{3}-[a-f]{2}"}})
        assert re.fullmatch("[0-9]{3}-[a-f]{2}", got.choices[0].message.content)
    got = ask(client, extra_body={"guided_grammar": 'start: "(" start ")" | "x"'})
    assert re.fullmatch(r"(\(*)x(\)*)", got.choices[0].message.content) or got.choices[0].finish_reason == "length"


def test_the_same_seed_draws_the_same_json_alone_and_among_others(client):
    alone = ask(client, response_format=schema_format(PERSON), seed=11, temperature=1, n=1)
    again = ask(client, response_format=schema_format(PERSON), seed=11, temperature=1, n=4)
    assert alone.choices[0].message.content == again.choices[0].message.content
    assert len({choice.message.content for choice in again.choices}) > 1


@pytest.mark.parametrize(
    "schema",
    [{"type": "array", "uniqueItems": True}, {"type": "nonsense"}, {"$ref": "https://example.com/schema"}, 7],
)
def test_schemas_that_cannot_be_enforced_are_refused(client, schema):
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, response_format=schema_format(schema))
    assert raised.value.body["param"].startswith("response_format")
