"""The official client, against the real server: what people who already have code will do first."""

import concurrent.futures

import openai
import pytest
import server as heddle


def user(text):
    return [{"role": "user", "content": text}]


def test_lists_the_models(client):
    listed = {model.id: model for model in client.models.list()}
    assert set(heddle.demo_models()) <= set(listed)
    one = client.models.retrieve(heddle.demo_models()[0])
    assert one.object == "model" and one.owned_by


@pytest.mark.parametrize("model", heddle.demo_models())
def test_answers_are_right(client, model):
    wrong = []
    for prompt, answer in heddle.eval_set(model, 40):
        got = client.chat.completions.create(model=model, messages=user(prompt), temperature=0)
        choice = got.choices[0]
        assert choice.finish_reason == "stop"
        assert got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens
        if choice.message.content != answer:
            wrong.append((prompt, answer, choice.message.content))
    assert len(wrong) <= 2, wrong  # The models are right in at least 99 of 100.


@pytest.mark.parametrize("model", heddle.demo_models())
def test_streams_the_same_text(client, model):
    prompt, _ = heddle.eval_set(model, 1)[0]
    whole = client.chat.completions.create(model=model, messages=user(prompt), temperature=0)
    stream = client.chat.completions.create(
        model=model, messages=user(prompt), temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    used, before = chunks[-1].usage, whole.usage
    assert chunks[-1].choices == []
    assert (used.prompt_tokens, used.completion_tokens) == (before.prompt_tokens, before.completion_tokens)
    assert len({c.id for c in chunks}) == 1


def test_seeded_sampling_repeats_and_seeds_differ(client):
    model = heddle.demo_models()[0]
    prompt, _ = heddle.eval_set(model, 1)[0]

    def draw(seed):
        got = client.chat.completions.create(
            model=model, messages=user(prompt), temperature=5, seed=seed, n=3, max_tokens=12
        )
        return [choice.message.content for choice in got.choices]

    first = draw(7)
    assert first == draw(7)
    assert first != draw(8)
    assert len(set(first)) > 1  # The choices of one request differ.


def test_stop_strings_end_the_text_before_them(client):
    model = heddle.demo_models()[0]
    prompt, answer = heddle.eval_set(model, 1)[0]
    stop = answer[2:4]
    got = client.chat.completions.create(model=model, messages=user(prompt), temperature=0, stop=[stop])
    assert got.choices[0].message.content == answer[: answer.index(stop)]
    assert got.choices[0].finish_reason == "stop"


def test_max_tokens_ends_with_length(client):
    model = heddle.demo_models()[0]
    prompt, _ = heddle.eval_set(model, 1)[0]
    got = client.chat.completions.create(model=model, messages=user(prompt), temperature=0, max_tokens=2)
    assert got.choices[0].finish_reason == "length"
    assert got.usage.completion_tokens == 2


def test_plain_completions(client):
    model = heddle.demo_models()[0]
    got = client.completions.create(model=model, prompt=["1", "2"], max_tokens=3, temperature=0)
    assert [choice.index for choice in got.choices] == [0, 1]
    assert got.usage.completion_tokens == sum(1 for _ in got.choices) * 3 or all(
        choice.finish_reason == "stop" for choice in got.choices
    )


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"model": "no-such-model"}, openai.NotFoundError, "no-such-model"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"top_p": 3}, openai.BadRequestError, "top_p"),
        ({"max_tokens": -5}, openai.BadRequestError, "max_tokens"),
        ({"n": 0}, openai.BadRequestError, "n"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"stop": 5}, openai.BadRequestError, "stop"),
    ],
)
def test_bad_requests_get_one_clear_error(client, options, error, names):
    request = {"model": heddle.demo_models()[0], "messages": user("1+1="), **options}
    with pytest.raises(error) as raised:
        client.chat.completions.create(**request)
    body = raised.value.body
    assert names in body["message"]
    assert body["type"] == "invalid_request_error"


def test_a_prompt_beyond_the_context_is_refused_with_numbers(client):
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=heddle.demo_models()[0], messages=user("1 " * 20000))
    assert any(character.isdigit() for character in raised.value.body["message"])


def test_many_at_once_over_all_models(client):
    """Every answer right although the models take turns in memory."""
    work = [(model, *pair) for model in heddle.demo_models() for pair in heddle.eval_set(model, 20)]
    work = [work[(i * 37) % len(work)] for i in range(len(work))]  # Mixed, the same way every time.

    def ask(item):
        model, prompt, answer = item
        got = client.chat.completions.create(model=model, messages=user(prompt), temperature=0)
        return got.choices[0].message.content == answer

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        right = list(pool.map(ask, work))
    assert len(right) == len(work)
    assert sum(right) >= 0.97 * len(work)
