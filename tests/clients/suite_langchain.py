"""LangChain's chat models and embeddings, of its packages for OpenAI, Anthropic and Ollama."""

import asyncio
import functools
import json
import operator
import os
from typing import Literal

import pydantic
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

SUBJECT = json.loads(os.environ["HEDDLE_SUBJECT"])
URL, KEY, MODEL, PROMPT, ANSWER = (SUBJECT[name] for name in ("url", "key", "model", "prompt", "answer"))
OPENAI = {"model": MODEL, "base_url": URL + "/v1", "api_key": KEY, "max_retries": 0}
OLLAMA = {"model": MODEL, "base_url": URL, "client_kwargs": {"headers": {"Authorization": f"Bearer {KEY}"}}}
CHATS = {
    "openai": lambda: ChatOpenAI(**OPENAI, temperature=0, max_tokens=100, stream_usage=True),
    "responses": lambda: ChatOpenAI(**OPENAI, temperature=0, max_tokens=100, use_responses_api=True),
    "anthropic": lambda: ChatAnthropic(model=MODEL, base_url=URL, api_key=KEY, temperature=0, max_tokens=100, max_retries=0),
    "ollama": lambda: ChatOllama(**OLLAMA, temperature=0, num_predict=100),
}
LOOP = asyncio.new_event_loop()  # Chat models of one kind share connections, which belong to a loop.
CALLERS = ["openai", "responses", "anthropic"]  # Ollama's API has no way to make a model call.


class Weather(pydantic.BaseModel):
    """tells the weather"""

    model_config = pydantic.ConfigDict(extra="forbid")
    city: Literal["Oslo", "Rome"]


@pytest.fixture(params=CHATS)
def chat(request):
    return CHATS[request.param]()


@pytest.fixture(params=CALLERS)
def caller(request):
    chat = CHATS[request.param]()
    return chat, chat.bind_tools([Weather], tool_choice="Weather", parallel_tool_calls=False)


def gather(chunks):
    return functools.reduce(operator.add, chunks)


def test_a_chat_whole_and_streamed(chat):
    whole = chat.invoke(PROMPT)
    assert whole.text == ANSWER and whole.usage_metadata["output_tokens"] > 0
    chunks = list(chat.stream(PROMPT))
    gathered = gather(chunks)
    assert len(chunks) > 2 and gathered.text == ANSWER
    assert gathered.usage_metadata["total_tokens"] == whole.usage_metadata["total_tokens"]


def test_many_at_once(chat):
    async def ask():
        return await chat.abatch([PROMPT] * 3), [part async for part in chat.astream(PROMPT)]

    answers, parts = LOOP.run_until_complete(ask())
    assert [answer.text for answer in answers] == [ANSWER] * 3 and gather(parts).text == ANSWER


def test_a_forced_call_and_its_result(caller):
    chat, bound = caller
    message = bound.invoke(PROMPT)
    (call,) = message.tool_calls
    assert call["name"] == "Weather" and Weather(**call["args"])
    (streamed,) = gather(bound.stream(PROMPT)).tool_calls
    assert streamed["args"] == call["args"]
    talk = [HumanMessage(PROMPT), message, ToolMessage("sunny", tool_call_id=call["id"]), HumanMessage(PROMPT)]
    assert chat.bind_tools([Weather]).invoke(talk).text == ANSWER


def test_answers_of_a_form(chat):
    assert isinstance(chat.with_structured_output(Weather, method="json_schema").invoke(PROMPT), Weather)


def test_answers_of_a_form_by_a_call(caller):
    chat, _ = caller
    assert isinstance(chat.with_structured_output(Weather, method="function_calling").invoke(PROMPT), Weather)


def test_vectors():
    # Else it sends tokens of OpenAI's own tokenizer, which it downloads.
    openai = OpenAIEmbeddings(**OPENAI, check_embedding_ctx_length=False)
    vectors = openai.embed_documents(["12", "34"])
    assert len(vectors) == 2 and vectors[0] != vectors[1]
    assert openai.embed_query("12") == pytest.approx(vectors[0], abs=1e-5)
    assert OllamaEmbeddings(**OLLAMA).embed_documents(["12", "34"]) == [pytest.approx(row, abs=1e-5) for row in vectors]


def test_plain_completions():
    assert OpenAI(**OPENAI, temperature=0, max_tokens=6, model_kwargs={"echo": True}).invoke("12").startswith("12")
    assert OllamaLLM(**OLLAMA, temperature=0).invoke(PROMPT) == ANSWER
