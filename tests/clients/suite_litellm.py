"""LiteLLM, by each of its ways to a server: OpenAI's API, vLLM's, Anthropic's and Ollama's."""

import asyncio
import json
import os

import litellm
import pytest

SUBJECT = json.loads(os.environ["HEDDLE_SUBJECT"])
URL, KEY, MODEL, ANSWER = (SUBJECT[name] for name in ("url", "key", "model", "answer"))
MESSAGES = [{"role": "user", "content": SUBJECT["prompt"]}]
BASES = {"openai": "/v1", "hosted_vllm": "/v1", "anthropic": "", "ollama_chat": ""}
litellm.suppress_debug_info = True


def reach(route, base=None):
    return {"model": f"{route}/{MODEL}", "api_base": URL + (BASES[route] if base is None else base), "api_key": KEY}


def ask(route, **options):
    return litellm.completion(**{**reach(route), "messages": MESSAGES, "temperature": 0, "max_tokens": 100, **options})


@pytest.mark.parametrize("route", BASES)
def test_a_chat_whole_and_streamed(route):
    whole = ask(route)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (ANSWER, "stop")
    assert whole.usage.prompt_tokens > 0 and whole.usage.completion_tokens > 0
    chunks = list(ask(route, stream=True, stream_options={"include_usage": True}))
    assert len(chunks) > 2
    gathered = litellm.stream_chunk_builder(chunks)
    assert (gathered.choices[0].message.content, gathered.choices[0].finish_reason) == (ANSWER, "stop")
    assert gathered.usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("route", ["openai", "anthropic"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_call(route, stream):
    city = {"type": "string", "enum": ["Oslo", "Rome"]}
    form = {"type": "object", "properties": {"city": city}, "required": ["city"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "weather", "description": "tells the weather", "parameters": form}}
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = ask(route, tools=[tool], tool_choice=choice, stream=stream)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer))
    assert answer.choices[0].finish_reason == "tool_calls"
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in city["enum"]


@pytest.mark.parametrize("route", BASES)
def test_an_answer_of_a_form(route):
    form = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "form", "strict": True, "schema": form}}
    answer = json.loads(ask(route, response_format=wanted).choices[0].message.content)
    assert set(answer) == {"ok"} and isinstance(answer["ok"], bool)


def test_vectors():
    made = {}
    for route, base in [("openai", "/v1"), ("hosted_vllm", "/v1"), ("ollama", "")]:
        answer = litellm.embedding(**reach(route, base), input=["12", "34"])
        made[route] = [row["embedding"] for row in answer.data]
        assert len(made[route]) == 2 and answer.usage.prompt_tokens > 0
    assert made["hosted_vllm"] == made["openai"]
    assert made["ollama"] == [pytest.approx(row, abs=1e-5) for row in made["openai"]]


def test_responses_and_plain_completions():
    answer = litellm.responses(**reach("openai"), input=SUBJECT["prompt"], temperature=0)
    assert answer.output[0].content[0].text == ANSWER
    plain = litellm.text_completion(
        **reach("text-completion-openai", "/v1"), prompt="12", max_tokens=5, extra_body={"ignore_eos": True}
    )
    assert (plain.choices[0].finish_reason, plain.usage.completion_tokens) == ("length", 5)


def test_many_at_once():
    async def gather():
        return await asyncio.gather(
            *(litellm.acompletion(**reach(route), messages=MESSAGES, temperature=0, max_tokens=100) for route in BASES)
        )

    assert [answer.choices[0].message.content for answer in asyncio.run(gather())] == [ANSWER] * len(BASES)


def test_errors_are_its_own():
    with pytest.raises(litellm.NotFoundError):
        ask("openai", model="openai/nobody", num_retries=0)
    with pytest.raises(litellm.AuthenticationError):
        ask("openai", api_key="wrong", num_retries=0)
    with pytest.raises(litellm.NotFoundError):
        ask("anthropic", model="anthropic/nobody", num_retries=0)
