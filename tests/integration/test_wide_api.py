"""The wider API with the official client, against the real server. The demo models barely speak, so what
they say is held in shape by grammars, which work with any weights."""

import json
import math
import re
import time
import urllib.request

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


def test_a_prompt_is_as_likely_as_it_was_when_it_was_generated(server):
    # Of the adder, whose text is cut into the same tokens again.
    generated, scored = server.told_twice("adder", heddle.eval_set("adder", 1)[0][0])
    assert scored == pytest.approx(generated, abs=0.05)  # In bfloat16.


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


def test_an_answer_that_is_held_to_a_form_may_be_thought_about_first():
    row = f"  {MODEL}: {{path: {heddle.MODELS / MODEL}, reasoning_parser: think}}\n"
    with heddle.Server(heddle.config(models=[row])) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
        held = {"temperature": 0, "extra_body": {"guided_regex": "[0-9]{3}"}}
        assert re.fullmatch("[0-9]{3}", ask(client, **held).choices[0].message.content)
        (bracket,) = server.call("/tokenize", {"model": MODEL, "prompt": "<", "add_special_tokens": False})[2]["tokens"]
        thought = ask(client, **held, logit_bias={bracket: 100}, max_tokens=30).choices[0]
        assert thought.finish_reason == "length"
        assert thought.message.reasoning_content == "<" * len(thought.message.reasoning_content)
        assert len(thought.message.reasoning_content) > 10 and not thought.message.content


def test_the_same_seed_draws_the_same_json_alone_and_among_others(client):
    alone = ask(client, response_format=schema_format(PERSON), seed=11, temperature=1, n=1)
    again = ask(client, response_format=schema_format(PERSON), seed=11, temperature=1, n=4)
    assert alone.choices[0].message.content == again.choices[0].message.content
    assert len({choice.message.content for choice in again.choices}) > 1


@pytest.mark.parametrize(
    "schema",
    [{"type": "array", "contains": {}}, {"type": "nonsense"}, {"$ref": "https://example.com/schema"}, 7],
)
def test_schemas_that_cannot_be_enforced_are_refused(client, schema):
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, response_format=schema_format(schema))
    assert raised.value.body["param"].startswith("response_format")


# --- embeddings ---


def embed(client, texts, **options):
    got = client.embeddings.create(model=MODEL, input=texts, **options)
    assert [one.index for one in got.data] == list(range(len(got.data)))
    return [one.embedding for one in got.data]


def test_embeddings_are_of_length_one_and_do_not_depend_on_company(client):
    texts = ["1+1=", "12+34=", "hello"]
    vectors = embed(client, texts)  # The client asks for base64 and decodes it.
    for vector in vectors:
        assert math.isclose(sum(x * x for x in vector), 1, rel_tol=1e-5)
    assert [embed(client, text)[0] for text in texts] == vectors
    assert embed(client, texts, encoding_format="float") == [pytest.approx(vector, abs=1e-7) for vector in vectors]
    assert vectors[0] != vectors[1]


def test_embeddings_of_tokens_and_their_usage(server, client):
    status, _, tokens = server.call("/tokenize", {"model": MODEL, "prompt": "12+34="})
    assert status == 200
    got = client.embeddings.create(model=MODEL, input=[tokens["tokens"]])
    assert got.data[0].embedding == embed(client, "12+34=")[0]
    assert got.usage.prompt_tokens == got.usage.total_tokens == tokens["count"]


def test_fewer_dimensions_are_the_first_ones_at_length_one(client):
    whole, cut = embed(client, "1+1=")[0], embed(client, "1+1=", dimensions=8)[0]
    length = math.sqrt(sum(x * x for x in whole[:8]))
    assert cut == pytest.approx([x / length for x in whole[:8]], abs=1e-6)
    with pytest.raises(openai.BadRequestError) as raised:
        embed(client, "1+1=", dimensions=len(whole) + 1)
    assert raised.value.body["param"] == "dimensions"


def test_the_mean_of_all_states_is_another_vector_than_the_last():
    row = f"  {MODEL}: {{path: {heddle.MODELS / MODEL}, pooling: %s}}\n"
    vectors = []
    for pooling in ["last", "mean"]:
        with heddle.Server(heddle.config(models=[row % pooling])) as running:
            own = openai.OpenAI(base_url=running.url + "/v1", api_key="unused", max_retries=0)
            vectors += embed(own, "1+1=")
    assert vectors[0] != pytest.approx(vectors[1], abs=1e-3)


# --- tools ---

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Tells the {name}.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    }
    for name in ["weather", "news"]
]


@pytest.fixture(scope="module", params=["hermes", "llama3_json", "mistral", "none"])
def caller(request):
    """A client of a server whose model spells calls in one of the formats; with "none" it is held to the generic one."""
    row = f"  {MODEL}: {{path: {heddle.MODELS / MODEL}, tool_parser: {request.param}}}\n"
    with heddle.Server(heddle.config(models=[row])) as running:
        yield openai.OpenAI(base_url=running.url + "/v1", api_key="unused", max_retries=0, timeout=60)


def check_calls(calls, names):
    assert len({call.id for call in calls}) == len(calls) >= 1
    for call in calls:
        assert call.type == "function" and call.function.name in names
        arguments = json.loads(call.function.arguments)
        assert set(arguments) == {"city", "days"}
        assert arguments["city"] in ["Oslo", "Rome"] and 1 <= arguments["days"] <= 9


def test_a_required_call_conforms_to_its_schema(caller):
    for seed in range(3):
        got = ask(caller, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, temperature=1, seed=seed)
        assert got.choices[0].finish_reason == "tool_calls"
        assert got.choices[0].message.content is None
        assert len(got.choices[0].message.tool_calls) == 1
        check_calls(got.choices[0].message.tool_calls, {"weather", "news"})


def test_a_named_call_is_of_that_tool(caller):
    choice = {"type": "function", "function": {"name": "news"}}
    got = ask(caller, tools=TOOLS, tool_choice=choice, temperature=1)
    check_calls(got.choices[0].message.tool_calls, {"news"})
    assert len(got.choices[0].message.tool_calls) == 1


def test_streamed_calls_are_those_of_the_whole_answer(caller):
    options = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "temperature": 1}
    whole = ask(caller, **options).choices[0].message.tool_calls
    streamed, finish = {}, None
    for chunk in ask(caller, stream=True, **options):
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                name, arguments = streamed.get(call.index, ("", ""))
                streamed[call.index] = (name + (call.function.name or ""), arguments + call.function.arguments)
    assert finish == "tool_calls"
    assert list(streamed.values()) == [(call.function.name, call.function.arguments) for call in whole]


def test_a_whole_turn_with_a_tool_and_its_answer(caller):
    got = ask(caller, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    message = got.choices[0].message
    answer = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "7"}
    after = ask(caller, messages=[*user("1+1="), message.model_dump(exclude_none=True), answer], max_tokens=3)
    assert after.choices[0].finish_reason in ["stop", "length"]
    with pytest.raises(openai.BadRequestError):
        ask(caller, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "nobody"}})


# --- keep_alive, priorities, logs ---


def test_keep_alive_unloads_a_model_or_keeps_it(server, client):
    def resident():
        _, _, answer = server.call("/running")
        return {row["model"]: row["ttl"] for row in answer["running"]}

    ask(client, max_tokens=1, extra_body={"keep_alive": "1h"})
    assert resident()[MODEL] == 3600
    ask(client, max_tokens=1, extra_body={"keep_alive": 0, "priority": -5})
    deadline = time.monotonic() + 30
    while MODEL in resident():
        assert time.monotonic() < deadline, "the model stays"
        time.sleep(0.05)
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, extra_body={"keep_alive": "soon"})
    assert raised.value.body["param"] == "keep_alive"


def test_logs_tell_of_requests_and_of_no_secrets():
    extra = "apiKeys: [{key: sesame, role: admin}]\n"
    key = {"Authorization": "Bearer sesame"}
    with heddle.Server(heddle.config(models=[MODEL], extra=extra)) as running:
        own = openai.OpenAI(base_url=running.url + "/v1", api_key="sesame", max_retries=0)
        ask(own, messages=user("a secret"), max_tokens=1, extra_headers={"x-request-id": "mine-17"})
        status, _, text = running.call("/logs", headers=key)
        assert status == 200 and "mine-17" in text
        assert "sesame" not in text and "a secret" not in text
        assert running.call("/logs")[0] == 401
        request = urllib.request.Request(
            f"{running.url}/logs/stream/{MODEL}", headers={**key, "Accept": "text/event-stream"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as stream:
            assert stream.headers["Content-Type"] == "text/event-stream"
            lines = iter(stream.readline, b"")
            assert any(b"mine-17" in line for line in lines)


# --- responses ---


def test_a_response_and_the_chat_that_it_amounts_to(client):
    prompt, answer = heddle.eval_set(MODEL, 1)[0]
    got = client.responses.create(model=MODEL, input=prompt, temperature=0)
    assert got.output_text == answer and got.status == "completed"
    assert got.usage.total_tokens == got.usage.input_tokens + got.usage.output_tokens
    same = [{"role": "user", "content": [{"type": "input_text", "text": prompt}]}]
    assert client.responses.create(model=MODEL, input=same, temperature=0).output_text == answer
    short = client.responses.create(model=MODEL, input=prompt, temperature=0, max_output_tokens=1)
    assert short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens"


def test_the_events_of_a_response_make_the_response(client):
    prompt, answer = heddle.eval_set(MODEL, 1)[0]
    with client.responses.stream(model=MODEL, input=prompt, temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [events[0].type, events[1].type, events[-1].type] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == answer
    assert final.output_text == answer


def test_a_response_with_a_schema_or_a_call(client, caller):
    text = {"format": {"type": "json_schema", "name": "thing", "schema": PERSON, "strict": True}}
    got = client.responses.create(model=MODEL, input="1+1=", text=text, temperature=1, max_output_tokens=400)
    assert set(json.loads(got.output_text)) == {"name", "age", "pets"}
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    options = {"model": MODEL, "tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
    got = caller.responses.create(input="1+1=", temperature=1, max_output_tokens=400, **options)
    assert [item.type for item in got.output] == ["function_call"]
    assert json.loads(got.output[0].arguments)["city"] in ["Oslo", "Rome"]
    turn = [{"role": "user", "content": "1+1="}, got.output[0].model_dump(exclude_none=True)]
    turn += [{"type": "function_call_output", "call_id": got.output[0].call_id, "output": "sun"}]
    assert caller.responses.create(model=MODEL, input=turn, max_output_tokens=3).output is not None


def test_responses_are_kept_where_asked_for(client):
    kept = client.responses.create(model="adder", input="1+1=", store=True, max_output_tokens=8)
    assert client.responses.retrieve(kept.id).id == kept.id
    for options in [{"previous_response_id": "resp_1"}]:
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model=MODEL, input="1", **options)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
