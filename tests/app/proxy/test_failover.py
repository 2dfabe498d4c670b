"""Failover: as long as the caller has seen nothing, another engine may answer. After that, honesty."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.engines.breaker import Breaker, BreakerState
from tests.app.house import GatewayFixture, configured, eventually, run
from tests.script import (
    CloseNow,
    Hang,
    Head,
    Reset,
    Say,
    Step,
    chunk,
    event,
    reply,
    role,
    status,
    text,
    thought,
)
from tests.scripted_engine import ScriptedEngine

TIMEOUTS = {"connect": 0.5, "first_token": 0.4, "idle": 0.4, "total": 5.0}


@asynccontextmanager
async def pair(
    base: Path, **model: Any
) -> AsyncIterator[tuple[GatewayFixture, ScriptedEngine, ScriptedEngine]]:
    """A gateway with a live engine and a fallback, both scripted."""
    async with ScriptedEngine() as live, ScriptedEngine() as spare:
        table = {"dialect": "vllm", "driver": "url"}
        engines = {"live": {**table, "url": live.url}, "spare": {**table, "url": spare.url}}
        annie = {"live": "live", "fallback": ["spare"], "timeouts": TIMEOUTS, **model}
        async with run(configured(base, engines, annie=annie), live) as house:
            await eventually(lambda: all(s.url for s in house.gateway.pool.states().values()))
            await eventually(lambda: len(house.gateway.pool.states()) == 2)
            yield house, live, spare


HIDDEN = chunk({"reasoning": "Hm."})
FAULTS: dict[str, tuple[tuple[Step, ...], str]] = {
    "it closes before it answers": ((CloseNow(),), "upstream_disconnected"),
    "it says 500": (status(500), "upstream_status"),
    "it is busy": (status(503, b"loading"), "engine_busy"),
    "it gives no token": ((Head(), Say(role()), Hang()), "first_token_timeout"),
    "it gives no head": ((Hang(),), "first_token_timeout"),
    "its first frame is an error": (
        (Head(), Say(event({"error": {"message": "oom", "code": 500}}))),
        "upstream_status",
    ),
    "it breaks off behind a thought": ((Head(), Say(role()), Say(HIDDEN), CloseNow()), "upstream_truncated"),
    "it resets behind a thought": ((Head(), Say(thought("Hm.")), Reset()), "upstream_truncated"),
    "it falls silent behind a thought": ((Head(), Say(thought("Hm.")), Hang()), "idle_timeout"),
    "it sends nonsense": ((Head(), Say(b"data: {nonsense\n\n")), "upstream_malformed"),
    "its reply ends without an end": ((Head(), Say(role()), Say(HIDDEN)), "upstream_truncated"),
}


@pytest.mark.parametrize("steps, reason", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
async def test_the_fallback_answers_while_nothing_was_seen(
    tmp_path: Path, steps: Sequence[Step], reason: str, stream: bool
) -> None:
    async with pair(tmp_path) as (house, live, spare):
        live.play(*steps)
        spare.play(*reply("Hello."))
        answer = await house.ask(stream=stream)
        assert (answer.status, answer.text) == (200, "Hello.")
        assert answer.headers["x-manners-engine"] == "spare"
        metrics = await house.metrics()
        assert metrics("manners_failovers_total", engine="live", reason=reason) == 1
        assert metrics("manners_requests_total", engine="spare", outcome="ok") == 1
        assert metrics("manners_requests_total") == 1


async def test_a_fallback_that_comes_up_while_the_live_engine_fails_answers(tmp_path: Path) -> None:
    async with pair(tmp_path) as (house, live, spare):
        live.play(Hang())
        spare.play(*reply("Hello."))
        (other,) = (m for m in house.gateway.pool._backends.values() if m.spec.name == "spare")
        well, other.breaker = other.breaker, Breaker(BreakerState.OPEN, until=float("inf"))
        asking = asyncio.create_task(house.ask(stream=True))
        await eventually(lambda: any(not seen.is_probe for seen in live.requests))
        other.breaker = well
        assert (await asking).headers["x-manners-engine"] == "spare"


async def test_a_whole_reply_may_move_even_behind_text_that_nobody_has_seen(tmp_path: Path) -> None:
    async with pair(tmp_path) as (house, live, spare):
        live.play(Head(), Say(role()), Say(text("Hel")), CloseNow())
        spare.play(*reply("Hello."))
        assert (await house.ask()).text == "Hello."


async def test_behind_visible_text_the_fault_is_told_and_no_other_engine_is_asked(tmp_path: Path) -> None:
    async with pair(tmp_path) as (house, live, spare):
        live.play(Head(), Say(role()), Say(text("Hel")), CloseNow())
        answer = await house.ask(stream=True)
        assert answer.text == "Hel"
        assert answer.frames[-1]["error"]["code"] == "upstream_truncated"
        assert not [c for f in answer.frames[:-1] for c in f["choices"] if c["finish_reason"]]
        assert (await house.metrics())("manners_failovers_total") == 0
        assert not [seen for seen in spare.requests if not seen.is_probe]
