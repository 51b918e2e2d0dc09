"""The official client for Python."""

import asyncio
import json
import math
import threading
import time

import openai
import pydantic
import pytest
from subject import ANSWER, KEY, MODEL, PROMPT, heddle

MESSAGES = [{"role": "user", "content": PROMPT}]


def connect(server, **options):
    return openai.OpenAI(base_url=server.url + "/v1", **{"api_key": KEY, "max_retries": 0, "timeout": 60, **options})


@pytest.fixture(scope="module")
def client(server):
    return connect(server)


def ask(client, **options):
    return client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, "temperature": 0, **options})


# --- streaming ---


def test_a_stream_is_the_whole_answer(client):
    whole = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert whole.choices[0].message.content == ANSWER
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    used, before = chunks[-1].usage, whole.usage
    assert chunks[-1].choices == []
    assert (used.prompt_tokens, used.completion_tokens) == (before.prompt_tokens, before.completion_tokens)
    assert all(c.object == "chat.completion.chunk" and c.id == chunks[0].id for c in chunks)


def test_every_chunk_has_the_usage_so_far_where_it_is_asked_for(client):
    options = {"include_usage": True, "continuous_usage_stats": True}  # vLLM's.
    chunks = list(ask(client, stream=True, stream_options=options))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts[0] == 0 and counts == sorted(counts) and counts[-1] > 1
    assert len({chunk.usage.prompt_tokens for chunk in chunks}) == 1


def test_the_streaming_helper_gathers_the_answer(client):
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, temperature=0, n=2) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == [ANSWER, ANSWER]
    assert len(deltas) >= 2


def test_completions_stream(client):
    options = {"model": MODEL, "prompt": "12", "max_tokens": 6, "temperature": 0}
    whole = client.completions.create(**options)
    chunks = list(client.completions.create(stream=True, **options))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    echoed = client.completions.create(echo=True, **options)
    assert echoed.choices[0].text == "12" + whole.choices[0].text


# --- tools ---


class Weather(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    city: str = pydantic.Field(pattern="^(Oslo|Rome)$")
    days: int = pydantic.Field(ge=1, le=9)


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(min_length=1, max_length=8, pattern="^[a-z]+$")
    age: int = pydantic.Field(ge=0, le=120)
    tags: list[bool] = pydantic.Field(max_length=3)


TOOL = openai.pydantic_function_tool(Weather, name="weather")


def test_a_forced_call_is_parsed_into_its_class(client):
    options = {"model": MODEL, "messages": MESSAGES, "tools": [TOOL], "temperature": 1, "seed": 5}
    forced = {"type": "function", "function": {"name": "weather"}}
    got = client.chat.completions.parse(tool_choice=forced, **options)
    call = got.choices[0].message.tool_calls[0]
    assert got.choices[0].finish_reason == "tool_calls" and got.choices[0].message.content is None
    assert isinstance(call.function.parsed_arguments, Weather)
    with client.chat.completions.stream(tool_choice=forced, **options) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [event.parsed_arguments for event in done] == [call.function.parsed_arguments]
    assert final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments


def test_a_call_and_its_result_make_a_conversation(client):
    got = ask(client, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
    message = got.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}
    after = ask(client, messages=[*MESSAGES, message, result, *MESSAGES], tools=[TOOL], tool_choice="none")
    assert after.choices[0].message.tool_calls is None
    assert after.choices[0].message.content


def test_with_tools_and_a_format_an_answer_is_either(client):
    for seed in range(4):
        got = client.chat.completions.parse(
            model=MODEL, messages=MESSAGES, tools=[TOOL], response_format=Person, temperature=1, seed=seed, max_tokens=400
        )
        message = got.choices[0].message
        if message.tool_calls:
            assert all(isinstance(call.function.parsed_arguments, Weather) for call in message.tool_calls)
        else:
            assert isinstance(message.parsed, Person)


# --- JSON schemas ---


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_is_parsed_into_its_class(client, seed):
    got = client.chat.completions.parse(
        model=MODEL, messages=MESSAGES, response_format=Person, temperature=1, seed=seed, max_tokens=300
    )
    assert isinstance(got.choices[0].message.parsed, Person)


def test_an_object_of_any_kind(client):
    got = ask(client, response_format={"type": "json_object"}, max_tokens=300, temperature=1, seed=1)
    assert got.choices[0].finish_reason == "length" or isinstance(json.loads(got.choices[0].message.content), dict)


def test_an_answer_cut_off_by_its_limit_is_told(client):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Person, max_tokens=2)


# --- log probabilities ---


def test_logprobs(client):
    content = ask(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in content).decode() == ANSWER
    assert all(len(token.top_logprobs) == 2 and math.exp(token.logprob) <= 1 for token in content)
    streamed = []
    for chunk in ask(client, logprobs=True, top_logprobs=2, stream=True):
        if chunk.choices and chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert streamed == content
    old = client.completions.create(model=MODEL, prompt="12", max_tokens=4, logprobs=2, temperature=0)
    assert len(old.choices[0].logprobs.tokens) == len(old.choices[0].logprobs.token_logprobs)


# --- errors ---


def test_errors_have_their_classes(server, client, slow_server):
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, temperature=-1)
    assert raised.value.param == "temperature" and raised.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as raised:
        ask(client, model="nobody")
    assert raised.value.code == "model_not_found" and MODEL in str(raised.value)
    with pytest.raises(openai.AuthenticationError) as raised:
        ask(connect(server, api_key="wrong"))
    assert raised.value.code == "invalid_api_key"
    with pytest.raises(openai.BadRequestError):
        ask(client, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
    assert raised.value.request_id, "errors carry the id that logs have"


def test_request_ids_are_told(client):
    assert ask(client)._request_id
    assert ask(client, extra_headers={"x-request-id": "mine-1"})._request_id == "mine-1"


# --- cancellation ---

ENDLESS = {"extra_body": {"ignore_eos": True}, "max_tokens": 400}


def idle(server):
    """Whether nothing runs, within ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        _, _, answer = server.call("/running", headers={"x-api-key": KEY})
        if all(row["requests_running"] + row["requests_waiting"] == 0 for row in answer["running"]):
            return True
        time.sleep(0.02)
    return False


def last_trace(server):
    _, _, answer = server.call("/api/requests", headers={"x-api-key": KEY})
    return answer["requests"][0]


def test_a_stream_that_is_closed_stops_the_model(slow_server):
    stream = ask(connect(slow_server), stream=True, **ENDLESS)
    next(chunk for chunk in stream if chunk.choices[0].delta.content)
    stream.close()
    assert idle(slow_server)
    trace = last_trace(slow_server)
    assert trace["status"] == 499
    assert sum(part["completion_tokens"] for part in trace["parts"]) < 400


def test_a_time_out_stops_the_model(slow_server):
    with pytest.raises(openai.APITimeoutError):
        ask(connect(slow_server, timeout=0.5), **ENDLESS)
    assert idle(slow_server)
    assert last_trace(slow_server)["status"] == 499


# --- retries ---


def test_a_client_that_is_turned_away_tries_again(slow_server):
    statuses = []
    transport = openai.DefaultHttpxClient(event_hooks={"response": [lambda response: statuses.append(response.status_code)]})
    patient = connect(slow_server, max_retries=5, http_client=transport)
    stream = ask(connect(slow_server), stream=True, **ENDLESS)
    next(chunk for chunk in stream if chunk.choices[0].delta.content)
    with pytest.raises(openai.RateLimitError) as raised:
        ask(connect(slow_server), max_tokens=1)
    assert int(raised.value.response.headers["retry-after"]) >= 1
    threading.Timer(0.5, stream.close).start()
    assert ask(patient, max_tokens=1).choices[0].finish_reason == "length"
    assert statuses[0] == 429 and statuses[-1] == 200


# --- many at once ---


def test_an_asynchronous_client_with_many_requests(server):
    async def gather():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0, timeout=60) as client:
            pairs = heddle.eval_set(MODEL, 32)
            answers = await asyncio.gather(
                *(
                    client.chat.completions.create(
                        model=MODEL, messages=[{"role": "user", "content": prompt}], temperature=0
                    )
                    for prompt, _ in pairs
                )
            )
            return [answer.choices[0].message.content == right for answer, (_, right) in zip(answers, pairs)]

    assert sum(asyncio.run(gather())) >= 30


# --- the other endpoints ---


def test_models(client):
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).object == "model"


def test_embeddings(client):
    got = client.embeddings.create(model=MODEL, input=["1+1=", "2"])
    plain = client.embeddings.create(model=MODEL, input=["1+1=", "2"], encoding_format="float")
    assert [one.embedding for one in plain.data] == [pytest.approx(one.embedding, abs=1e-7) for one in got.data]


def test_responses_that_are_kept(client):
    first = client.responses.create(model=MODEL, input=PROMPT, temperature=0, store=True, max_output_tokens=20)
    assert client.responses.retrieve(first.id).output_text == first.output_text
    second = client.responses.create(model=MODEL, input=PROMPT, previous_response_id=first.id, max_output_tokens=20)
    assert second.previous_response_id == first.id
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=MODEL, input=PROMPT, previous_response_id=first.id)


def test_custom_tools_of_responses(client):
    tool = {"type": "custom", "name": "patch", "description": "Takes a text."}
    got = client.responses.create(
        model=MODEL, input=PROMPT, tools=[tool, {"type": "web_search"}], tool_choice={"type": "custom", "name": "patch"}
    )
    assert got.output[-1].type == "custom_tool_call" and got.output[-1].name == "patch"
    assert any("web_search" in warning for warning in got.warnings)


def test_the_input_of_a_custom_tool_is_streamed(client):
    asked = {"model": MODEL, "input": PROMPT, "tools": [{"type": "custom", "name": "patch"}], "temperature": 1}
    asked |= {"tool_choice": {"type": "custom", "name": "patch"}, "max_output_tokens": 60, "extra_body": {"seed": 5}}
    whole = client.responses.create(**asked).output[-1].input
    events = list(client.responses.create(stream=True, **asked))
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == whole and whole
    assert [event.input for event in events if event.type == "response.custom_tool_call_input.done"] == [whole]


def test_responses(client):
    got = client.responses.create(model=MODEL, input=PROMPT, temperature=0)
    assert got.output_text == ANSWER
    with client.responses.stream(model=MODEL, input=PROMPT, temperature=0) as stream:
        events = list(stream)
        assert stream.get_final_response().output_text == ANSWER
    assert events[-1].type == "response.completed"
    parsed = client.responses.parse(model=MODEL, input=PROMPT, text_format=Person, temperature=1, max_output_tokens=300)
    assert isinstance(parsed.output_parsed, Person)


# --- batches ---


def batch_of(client, names):
    """A batch of one chat for each of these names."""
    body = {"model": MODEL, "messages": MESSAGES, "temperature": 0}
    request = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    lines = "".join(json.dumps({"custom_id": name, **request}) + "\n" for name in names)
    file = client.files.create(file=("asked.jsonl", lines.encode()), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"of": "tests"}
    )


def test_a_batch_from_its_file_to_its_answers(client):
    batch = batch_of(client, ["a", "b"])
    assert batch.object == "batch" and batch.metadata == {"of": "tests"} and batch.status == "validating"
    while batch.status not in {"completed", "failed"}:
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    assert batch.status == "completed" and batch.error_file_id is None
    assert (batch.request_counts.total, batch.request_counts.completed) == (2, 2)
    rows = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert {row["custom_id"] for row in rows} == {"a", "b"}
    for row in rows:
        told = openai.types.chat.ChatCompletion.model_validate(row["response"]["body"])
        assert told.choices[0].message.content == ANSWER
    assert batch.id in [one.id for one in client.batches.list(limit=1)]  # It turns the pages.


def test_files_are_listed_and_deleted(client):
    made = [client.files.create(file=(f"{i}.jsonl", b"{}\n"), purpose="batch") for i in range(3)]
    assert client.files.retrieve(made[0].id) == made[0]
    assert {one.id for one in made} <= {one.id for one in client.files.list(limit=1, order="asc")}
    for one in made:
        assert client.files.delete(one.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made[0].id)
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=("x.jsonl", b"{}"), purpose="fine-tune")


def test_a_batch_is_cancelled(client):
    batch = client.batches.cancel(batch_of(client, [f"{i}" for i in range(2000)]).id)
    assert batch.status == "cancelling"
    while batch.status == "cancelling":
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    assert batch.status == "cancelled"
    assert batch.request_counts.completed < batch.request_counts.total == 2000
