"""A fault that a request carries with it takes no engine from the others."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from app.api.strict_json import MAX_PATTERN_WORK
from app.api.tool_schema import pattern_cost
from app.config.config import Config
from app.engines import backend
from tests.app.house import Answer, GatewayFixture, configured, house, nano, run
from tests.app.proxy.test_failover import pair
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    CloseNow,
    Hang,
    Head,
    Raw,
    Repeat,
    Reset,
    Say,
    Step,
    Tell,
    event,
    finish,
    role,
    status,
    text,
)
from tests.scripted_engine import ScriptedEngine, Seen

POISON = "poison"
FAULTS: dict[str, tuple[Step, ...]] = {
    "it answers 500": status(500, b"Failed to parse input at pos 3"),
    "it hangs up": (CloseNow(),),
    "it resets the connection": (Reset(),),
    "it says no HTTP": (Raw(b"boom\r\n\r\n"), CloseNow()),
    "it sends an error in the stream": (Head(), Say(event({"error": {"message": "no", "code": 500}}))),
    "it says in the stream that nobody listens": (Head(), Say(event({"error": {"message": "", "code": "connect_failed"}}))),
    "it sends nonsense": (Head(), Say(b"data: {nonsense\n\n")),
    "it breaks off before a token": (Head(), Say(role()), CloseNow()),
    "it breaks off in mid-reply": (Head(), Say(role()), Say(text("Hel")), CloseNow()),
    "it fails in mid-reply": (Head(), Say(text("Hel")), Say(event({"error": {"message": "no", "code": 500}}))),
    "it gives no token": (Hang(),),
    "it falls silent": (Head(), Say(text("Hel")), Hang()),
}  # fmt: skip


def is_poison(seen: Seen) -> bool:
    """Whether this request brings its fault along."""
    return bool(seen.body["messages"][-1]["content"] == POISON)


def chokes(engine: ScriptedEngine, steps: Sequence[Step]) -> None:
    """The engine fails at such requests, and at no other."""
    engine.choose = lambda seen: steps if is_poison(seen) else None


async def attack(home: GatewayFixture, times: int = 1) -> None:
    """That many at once."""
    asked = {"model": "annie", "messages": [{"role": "user", "content": POISON}], "stream": True}
    replies = await asyncio.gather(*(home.ask(asked) for _ in range(times)))
    assert all(b'"error"' in reply.raw for reply in replies)


@pytest.mark.parametrize("steps", FAULTS.values(), ids=FAULTS.keys())
async def test_a_polite_caller_is_served_while_another_sends_poison(
    tmp_path: Path, steps: Sequence[Step]
) -> None:
    silent = Hang() in steps
    times = {"first_token": 3.0, "idle": 3.0} if silent else {}
    timeouts = {"connect": PATIENCE, **times}  # a starved host must not look like a dead engine
    async with house(tmp_path, timeouts=timeouts, concurrency=64, queue=200) as home:
        chokes(home.engine, steps)
        for _ in range(1 if silent else 3):  # silence takes three seconds
            attacking = asyncio.create_task(attack(home, 12))
            polite = await asyncio.gather(*(home.ask(stream=True) for _ in range(33)))
            assert [reply.text for reply in polite] == ["Hello there."] * 33
            await attacking
        assert not [line for line in home.log.lines if line["event"] == "breaker"]


@pytest.mark.slow  # a hundred requests to a real engine: 2 s
async def test_alone_it_is_a_probe_that_clears_the_engine(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        chokes(home.engine, status(500))
        for _ in range(20):
            await attack(home)
        async with asyncio.timeout(PATIENCE):
            while (await home.metrics())("manners_engine_faults_total", cause="request") < 20:
                await asyncio.sleep(0.01)
        metrics = await home.metrics()
        assert metrics("manners_engine_faults_total", cause="engine") == 0
        assert {heard.ended for heard in home.gateway.reply_window.after("annie", "scripted")} == {"other"}
        assert (await home.ask()).text == "Hello there."


BROKEN: dict[str, tuple[Step, ...]] = {name: FAULTS[name] for name in list(FAULTS)[:5:2]}


@pytest.mark.parametrize("steps", BROKEN.values(), ids=BROKEN.keys())
async def test_an_engine_that_fails_its_probe_gets_no_second_request(
    tmp_path: Path, steps: Sequence[Step]
) -> None:
    async with pair(tmp_path) as (home, live, _):
        live.always(*steps)
        live.probes = steps
        assert (await home.ask()).headers["x-manners-engine"] == "spare"
        await home.log.until(1, "breaker")
        asked = len(live.requests)
        assert (await home.ask()).headers["x-manners-engine"] == "spare"
        assert len(live.requests) == asked
        metrics = await home.metrics()
        assert metrics("manners_engine_faults_total", engine="live", cause="engine") == 1
        assert metrics("manners_engine_ready", engine="live") == 0


@pytest.mark.parametrize("probes", [(Hang(),), status(503), status(429)], ids=["silent", "503", "429"])
async def test_an_engine_whose_places_are_taken_is_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probes: Sequence[Step]
) -> None:
    """The probe finds no room, but somebody is given tokens."""
    monkeypatch.setattr(backend, "PROBE_SECONDS", 0.2)
    over, begun = asyncio.Event(), asyncio.Event()
    talk = (Head(), Say(role()), Say(text("One")), Tell(begun), Repeat(text(" more"), 0.05, over))
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(house(tmp_path))
        home.engine.probes, probed = probes, home.engine.probed
        home.engine.play(*talk, Say(finish()), Say(DONE))
        talking = asyncio.create_task(home.ask(stream=True))
        await begun.wait()
        chokes(home.engine, status(500))
        await attack(home)
        async with asyncio.timeout(PATIENCE):
            while not (await home.metrics())("manners_engine_faults_total", cause="request"):
                await asyncio.sleep(0.01)
        over.set()
        assert home.engine.probed > probed
        said = (await talking).text
        assert said == "One" + " more" * said.count(" more")
        assert not [line for line in home.log.lines if line["event"] == "breaker"]


HEAVIEST = "^(" + "|".join("a" * 31) + ")*$"
"""As much work as a pattern may be, of the kind that costs llama.cpp most; with 90 branches it stops for minutes."""


@pytest.mark.slow
@pytest.mark.engine
async def test_a_real_engine_serves_others_beside_the_heaviest_pattern_that_passes(tmp_path: Path) -> None:
    assert MAX_PATTERN_WORK * 0.9 < pattern_cost(HEAVIEST) <= MAX_PATTERN_WORK
    form = {"name": "x", "schema": {"type": "string", "pattern": HEAVIEST}}
    async with run(alone(tmp_path)) as home:
        asked: dict[str, Any] = {
            "response_format": {"type": "json_schema", "json_schema": form},
            "max_tokens": 8,
        }
        heavy = [asyncio.create_task(home.ask(**asked)) for _ in range(4)]
        polite = await _ask_one_by_one(home, 5)
        assert [reply.status for reply in polite] == [200] * 5
        assert [(await reply).status for reply in heavy] == [200] * 4
        assert not [line for line in home.log.lines if line["event"] == "breaker"]


def alone(state: Path) -> Config:
    """annie-nano alone, in the embedded engine."""
    engine = nano("annie-nano-q4_k_m", "--threads", "1")
    return configured(state, {"nano": engine}, annie={"live": "nano", "queue": 256})


async def _ask_one_by_one(home: GatewayFixture, times: int) -> list[Answer]:
    return [await home.ask(stream=True, max_tokens=4) for _ in range(times)]
