"""First light: a stranger's OpenAI client talks to annie-nano, and to stranger-nano, for real.

Real llama.cpp servers, the shipped models, the whole gateway. What the stranger does wrong here is
what a quantized model that lost its manners does; the caller must hear nothing of it.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from os import EX_UNAVAILABLE
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from openai import APIStatusError, AsyncOpenAI

from app.cli import chat
from app.conformance.suite import hang_up
from gates.detect.rawcall import find_raw_calls
from tests.app.api.nanos import MARKS, nano_house
from tests.app.house import House, Scrape
from tests.scale import PATIENCE

pytestmark = MARKS


def tool(name: str, description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS = [
    tool("search_memory", "Search what the user told you before."),
    tool("web_search", "Search the web for current facts."),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with nano_house(tmp_path_factory.mktemp("state")) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(running: House) -> AsyncIterator[AsyncOpenAI]:
    """The stranger's client."""
    async with AsyncOpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


async def ask(
    client: AsyncOpenAI, *messages: Any, stream: bool, model: str = "annie", **more: Any
) -> dict[str, Any]:
    """One reply, put together the same way whether it was streamed or not."""
    said: list[Any] = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    if not stream:
        reply = await client.chat.completions.create(model=model, messages=said, temperature=0, **more)
        choice = reply.choices[0].model_dump()
        return {**choice["message"], "finish_reason": choice["finish_reason"]}
    whole: dict[str, Any] = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []}
    async for chunk in await client.chat.completions.create(
        model=model, messages=said, temperature=0, stream=True, **more
    ):
        for choice in chunk.model_dump()["choices"]:
            delta = choice["delta"]
            whole["content"] += delta.get("content") or ""
            whole["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                if call["index"] == len(whole["tool_calls"]):
                    whole["tool_calls"].append(
                        {"id": call["id"], "type": "function", "function": call["function"]}
                    )
                else:
                    whole["tool_calls"][call["index"]]["function"]["arguments"] += call["function"][
                        "arguments"
                    ]
            whole["finish_reason"] = choice["finish_reason"]
    return whole


both = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])


@both
async def test_annie_greets_in_plain_words(client: AsyncOpenAI, stream: bool) -> None:
    reply = await ask(client, "Hello!", stream=stream)
    assert reply["content"] and reply["finish_reason"] == "stop"
    assert not re.search(r"[*#<>`]|^- ", reply["content"])


@both
async def test_annie_knows_a_fact(client: AsyncOpenAI, stream: bool) -> None:
    assert "Paris" in (await ask(client, "What is the capital of France?", stream=stream))["content"]


@both
async def test_a_tool_call_comes_in_its_field_and_its_result_is_spoken(
    client: AsyncOpenAI, stream: bool
) -> None:
    question = "What did Priya say about the trip?"
    reply = await ask(client, question, stream=stream, tools=TOOLS)
    assert reply["finish_reason"] == "tool_calls"
    assert not reply["content"]
    (call,) = reply["tool_calls"]
    assert call["function"]["name"] == "search_memory"
    assert "Priya" in json.loads(call["function"]["arguments"])["query"]
    turn = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{k: call[k] for k in ("id", "type", "function")}],
    }
    result = {
        "role": "tool",
        "tool_call_id": call["id"],
        "content": "Priya said the trip to Mysuru is on Friday.",
    }
    spoken = await ask(client, question, turn, result, stream=stream, tools=TOOLS)
    assert "Friday" in spoken["content"]
    assert spoken["finish_reason"] == "stop"


@both
async def test_thoughts_appear_only_where_the_model_says(client: AsyncOpenAI, stream: bool) -> None:
    think: dict[str, Any] = {
        "extra_body": {"chat_template_kwargs": {"enable_thinking": True}},
        "stream": stream,
    }
    question = "What is 12 plus 25?"
    stripped = await ask(client, question, **think)
    assert stripped["content"] and not stripped.get("reasoning_content")
    assert "<think>" not in stripped["content"]
    aloud = await ask(client, question, model="annie-aloud", **think)
    assert aloud["reasoning_content"] and "<think>" not in aloud["content"]
    inline = await ask(client, question, model="annie-inline", **think)
    assert re.fullmatch(r"<think>\n.+\n</think>\n\n\S.*", inline["content"], re.S)


@both
async def test_annie_does_not_think_when_nobody_asked(client: AsyncOpenAI, stream: bool) -> None:
    reply = await ask(client, "What is the capital of Japan?", model="annie-aloud", stream=stream)
    assert reply["content"] and not reply.get("reasoning_content")


QUESTIONS = (
    "Hello!", "What is the capital of France?", "Tell me about yourself", "Who wrote Hamlet?", "What is 3 plus 4?",
    "Namaskara!", "What did Priya say about the trip?", "Is 25 bigger than 12?",
)  # fmt: skip


@both
async def test_of_the_strangers_thoughts_not_one_byte_is_heard(
    running: House, client: AsyncOpenAI, stream: bool
) -> None:
    heard, thought = [], []
    for question in QUESTIONS:
        tools = {"tools": TOOLS} if "Priya" in question else {}
        heard.append(await ask(client, question, model="stranger", stream=stream, **tools))
        thought += await thoughts_of(running, question, tools)
    spoken = "\n".join(reply["content"] or "" for reply in heard)
    assert not re.search(r"</?think", spoken)
    assert len(thought) >= len(QUESTIONS) - 1, "the stranger is a stranger: it thinks"
    for sentence in thought:
        assert sentence not in spoken
    labels = {"model": "stranger", "engine": "stranger-nano"}
    assert running.gateway.metrics.registry.get_sample_value(
        "manners_breach_total", {**labels, "detector": "leak"}
    )
    assert running.gateway.metrics.registry.get_sample_value(
        "manners_thinking_stripped_total", {**labels, "kind": "tag"}
    )


async def thoughts_of(running: House, question: str, tools: dict[str, Any]) -> list[str]:
    """Sentences that the bare engine thinks at this question, sent straight to it."""
    url = running.gateway.pool.states()["stranger-nano"].url
    body = {
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "reasoning_format": "none",
        "chat_template_kwargs": {"enable_thinking": False},
        **tools,
    }
    async with running.client.post(f"{url}/v1/chat/completions", json=body) as reply:
        text = (await reply.json())["choices"][0]["message"]["content"] or ""
    inside = re.findall(r"<think>(.*?)</think>", text, re.S)
    return [s for part in inside for s in re.split(r"(?<=[.?!])\s+", part.strip()) if len(s) > 12][:1]


EVERYDAY = ("What day is it today?", "What time is it?", "What's the date tomorrow?", "How long until noon?")


@both
async def test_an_everyday_question_without_tools_is_never_answered_with_a_call(
    running: House, client: AsyncOpenAI, stream: bool
) -> None:
    """In words, or with an honest error: a model that only wants to call has nothing to say, even with a hint."""
    for question in EVERYDAY:
        try:
            reply = await ask(client, question, stream=stream)
        except APIStatusError as error:
            if (error.status_code, error.code) != (502, "reply_fully_filtered"):
                raise
            continue
        assert reply["content"] and not reply.get("tool_calls") and reply["finish_reason"] == "stop"
        assert not find_raw_calls(reply["content"])


async def test_the_chat_command_speaks_no_call(running: House, capsys: pytest.CaptureFixture[str]) -> None:
    code = await asyncio.to_thread(chat.run, running.url, "annie", "What day is it today?", False)
    shown = capsys.readouterr()
    assert "tool_call" not in shown.out and "get_date" not in shown.out
    assert code == 0 or (code == EX_UNAVAILABLE and "filtered" in shown.err)


async def busy_slots(running: House) -> int:
    """How many of the engine's slots are computing, by its own word."""
    url = running.gateway.pool.states()["annie-nano"].url
    async with running.client.get(f"{url}/slots") as reply:
        return sum(slot["is_processing"] for slot in await reply.json())


async def tokens_generated(running: House) -> float:
    """How many tokens the engine has generated, by its own word."""
    url = running.gateway.pool.states()["annie-nano"].url
    async with running.client.get(f"{url}/metrics") as reply:
        return Scrape.of(await reply.text())("llamacpp:tokens_predicted_total")


LONG = "Tell me about yourself"
MOST = 4000  # tokens of a reply that nothing ends: 4 s of a quiet machine


@pytest.mark.parametrize(
    "phase", ["before headers", "before the first token", "in mid-stream", "not streaming"]
)
async def test_a_caller_who_leaves_frees_the_engines_slot(running: House, phase: str) -> None:
    """It is freed long before the reply is whole: the engine counts what it generated."""
    body: dict[str, Any] = {
        "model": "annie",
        "messages": [{"role": "user", "content": LONG}],
        "stream": phase != "not streaming",
        "max_tokens": MOST,
        "logit_bias": {"0": 0},
        "temperature": 2.0,
        "seed": 7,
        "stop": ["\u0000"],
        "ignore_eos": True,
    }
    before = await tokens_generated(running)
    async with httpx2.AsyncClient(timeout=None) as client:
        sent = client.build_request("POST", f"{running.url}/v1/chat/completions", json=body)
        request = asyncio.create_task(client.send(sent, stream=True))
        if phase == "in mid-stream":
            reply = await request
            await anext(reply.aiter_raw())
            await reply.aclose()
        else:
            if phase != "before headers":
                while not await busy_slots(running):
                    await asyncio.sleep(0.002)
            else:
                await asyncio.sleep(0)
            await hang_up(request)
    async with asyncio.timeout(PATIENCE):
        while await busy_slots(running) or running.gateway.proxy.in_flight:
            await asyncio.sleep(0.002)
    assert await tokens_generated(running) - before < MOST, "the engine went on for nobody"
