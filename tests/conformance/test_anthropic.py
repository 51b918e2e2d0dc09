"""The official client of Anthropic's API for Python."""

import json

import anthropic
import closer
import pydantic
import pytest
from subject import ANSWER, KEY, MODEL, PROMPT, heddle

MESSAGES = [{"role": "user", "content": PROMPT}]
WEATHER = {
    "name": "weather",
    "description": "tells the weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def connect(server, **options):
    return anthropic.Anthropic(base_url=server.url, **{"api_key": KEY, "max_retries": 0, "timeout": 60, **options})


@pytest.fixture(scope="module")
def client(server):
    return connect(server)


def ask(client, **options):
    return client.messages.create(**{"model": MODEL, "messages": MESSAGES, "max_tokens": 32, "extra_body": {"temperature": 0}, **options})


def test_a_message(client):
    message = ask(client)
    assert [block.type for block in message.content] == ["text"] and message.content[0].text == ANSWER
    assert (message.type, message.role, message.model, message.stop_reason) == ("message", "assistant", MODEL, "end_turn")
    used = message.usage
    assert used.output_tokens > 0 and used.input_tokens + used.cache_read_input_tokens > 0
    assert message._request_id


def test_a_stream_is_the_whole_answer(client):
    with client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=32, extra_body={"temperature": 0}) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == ANSWER == final.content[0].text
    whole = ask(client)
    sums = [used.input_tokens + used.cache_read_input_tokens for used in (final.usage, whole.usage)]
    assert sums[0] == sums[1] and final.usage.output_tokens == whole.usage.output_tokens
    assert final.stop_reason == "end_turn"
    kinds = [event.type for event in ask(client, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]


def test_a_repeated_prompt_is_read_from_the_cache(server):
    many = [{"role": "user", "content": PROMPT + " " * 200}]
    first, second = (connect(server).messages.create(model=MODEL, messages=many, max_tokens=4) for _ in range(2))
    total = [m.usage.input_tokens + m.usage.cache_read_input_tokens for m in (first, second)]
    assert total[0] == total[1]
    assert second.usage.cache_read_input_tokens >= first.usage.cache_read_input_tokens


def test_blocks_and_markers_of_caches_are_taken(client):
    marked = {"type": "text", "text": PROMPT, "cache_control": {"type": "ephemeral"}}
    message = ask(
        client,
        system=[{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": [marked]}],
        metadata={"user_id": "somebody"},
        extra_headers={"anthropic-beta": "prompt-caching-2024-07-31"},
    )
    assert message.content[0].text == ANSWER


def test_a_stop_sequence(client):
    stop = ANSWER[-1]
    message = ask(client, stop_sequences=[stop])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    assert message.content[0].text == ANSWER[: ANSWER.index(stop)]
    assert ask(client, max_tokens=1).stop_reason == "max_tokens"


# --- tools ---


def test_a_forced_call(client):
    message = ask(client, tools=[WEATHER], tool_choice={"type": "tool", "name": "weather"}, max_tokens=200)
    assert message.stop_reason == "tool_use"
    assert [block.type for block in message.content] == ["tool_use"]
    assert message.content[0].name == "weather" and message.content[0].input["city"] in ("Oslo", "Rome")


def test_a_streamed_call_and_its_result(client):
    options = {"model": MODEL, "tools": [WEATHER], "max_tokens": 200}
    one = {"type": "any", "disable_parallel_tool_use": True}
    with client.messages.stream(messages=MESSAGES, tool_choice=one, **options) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    (call,) = (block for block in message.content if block.type == "tool_use")
    assert json.loads("".join(parts)) == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    messages = [*MESSAGES, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    after = client.messages.create(messages=messages, tool_choice={"type": "none"}, **options)
    assert all(block.type == "text" for block in after.content)


class City(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    sunny: bool


def test_an_answer_of_a_form(client):
    parsed = client.messages.parse(model=MODEL, messages=MESSAGES, max_tokens=64, output_format=City)
    assert isinstance(parsed.parsed_output, City)


# --- thinking, counting, listing ---


def test_thoughts_are_blocks_of_their_own(tmp_path):
    closer.write(tmp_path / "closer", thinks=True)
    row = f"  closer: {{path: {tmp_path / 'closer'}, reasoning_parser: think}}\n"
    with heddle.Server(heddle.config(models=[row], extra=f"apiKeys: [{KEY}]\n")) as running:
        client = connect(running)
        options = {"model": "closer", "messages": MESSAGES, "max_tokens": 64}
        thinking = {"type": "enabled", "budget_tokens": 1024}
        thought = client.messages.create(thinking=thinking, **options)
        assert [(block.type, block.thinking) for block in thought.content] == [("thinking", "o")]
        with client.messages.stream(thinking=thinking, **options) as stream:
            told = "".join(event.thinking for event in stream if event.type == "thinking")
            assert told == stream.get_final_message().content[0].thinking == "o"
        for off in ({}, {"thinking": {"type": "disabled"}}):
            plain = client.messages.create(**off, **options)
            assert [(block.type, block.text) for block in plain.content] == [("text", "o")]


def test_tokens_are_counted(client):
    counted = client.messages.count_tokens(model=MODEL, messages=MESSAGES)
    used = ask(client).usage
    assert counted.input_tokens == used.input_tokens + used.cache_read_input_tokens


def test_models_are_listed(client):
    listed = list(client.models.list(limit=1))
    assert [model.id for model in listed] == [MODEL] and listed[0].type == "model"
    assert client.models.retrieve(MODEL).created_at.year >= 2026


# --- errors ---


def test_errors_are_of_their_classes(client, server, slow_server):
    with pytest.raises(anthropic.NotFoundError) as caught:
        ask(client, model="nobody")
    assert caught.value.body["error"]["type"] == "not_found_error" and caught.value.request_id
    with pytest.raises(anthropic.BadRequestError) as caught:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        ask(client, messages=[{"role": "user", "content": [image]}])
    assert "image" in caught.value.message
    with pytest.raises(anthropic.AuthenticationError):
        ask(connect(server, api_key="wrong"))
    with connect(slow_server).messages.stream(model=MODEL, messages=MESSAGES, max_tokens=32) as stream:
        next(iter(stream))
        with pytest.raises(anthropic.RateLimitError):
            ask(connect(slow_server))


def test_a_bearer_token_is_a_key(server):
    assert ask(connect(server, api_key=None, auth_token=KEY)).content[0].text == ANSWER
