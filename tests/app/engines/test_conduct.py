"""What an engine was seen to do decides how much of its speech is held back, and the caller hears no thought."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.engines import backend
from app.engines.behaviour import QUESTIONS
from app.stream.audit import unasked_thought
from app.stream.thinking_control import HELD, PUBLIC, held_characters, thinking_control
from deploy.engine.abilities import Abilities
from tests.app.house import HELLO, TOOLS, GatewayFixture, config, eventually, house, run
from tests.script import DONE, Head, Say, Step, finish, role, status, text
from tests.scripted_engine import ScriptedEngine

live = pytest.mark.asyncio


def says(*parts: str) -> tuple[Step, ...]:
    return (Head(), Say(role()), *(Say(text(part)) for part in parts), Say(finish()), Say(DONE))


@pytest.mark.parametrize(
    "abilities, gated, violated, control",
    [
        (Abilities(), False, False, "unverified"),
        (Abilities(off_works=True), False, False, "verified"),
        (Abilities(off_works=False), False, False, "unverified"),
        (Abilities(), True, False, "verified"),
        (Abilities(off_works=True), True, True, "violated"),
    ],
)
def test_what_is_seen_last_counts_most(
    abilities: Abilities, gated: bool, violated: bool, control: Any
) -> None:
    assert thinking_control(abilities, gated, violated) == control
    assert held_characters("auto", control) == HELD[control]
    assert held_characters(7, control) == 7


@pytest.mark.parametrize(
    "stripped, told, kind",
    [
        ({"orphan", "tag"}, True, "orphan"),
        ({"tag"}, True, "tag"),
        ({"tag"}, False, None),
        ({"orphan"}, False, "orphan"),
        ({"field"}, True, None),
        (set[str](), True, None),
    ],
)
def test_only_a_thought_in_the_text_is_held_against_an_engine(
    stripped: set[str], told: bool, kind: str | None
) -> None:
    assert unasked_thought(stripped, told) == kind


async def state(home: GatewayFixture) -> str:
    """The engine's `ThinkingControl`, as Prometheus and operators have it."""
    metrics = await home.metrics()
    shown = [s for s in PUBLIC.values() if metrics("manners_engine_conduct", engine="scripted", state=s)]
    (engine,) = (await home.operate("/admin/engines")).json["engines"]
    assert shown == [engine["conduct"]]
    return shown[0]


@live
@pytest.mark.parametrize(
    "dialect, off, shown",
    [
        ("openai", None, "unknown"),
        ("vllm", status(400, {"error": {"message": "no"}}), "unknown"),
        (
            "vllm",
            status(200, {"choices": [{"message": {"content": "<think>"}, "finish_reason": "stop"}]}),
            "caught",
        ),
    ],
    ids=["not asked", "no answer", "caught by its probe"],
)
async def test_an_engine_that_was_not_is_held(tmp_path: Path, dialect: str, off: Any, shown: str) -> None:
    async with ScriptedEngine() as engine:
        if off is not None:
            engine.answers["off"] = off
        async with run(config(engine, tmp_path, dialect=dialect), engine) as home:
            assert await state(home) == shown
            home.engine.play(*says("SECRET thought", "</think>", "Hi."))
            assert (await home.ask(stream=True)).text == "Hi."


LEAKS = says("SECRET", "</think>", "Hi.")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway looks all the time whether a probe is due."""
    monkeypatch.setattr(backend, "LOOK_SECONDS", 0.01)


def questioned(home: GatewayFixture, times: int) -> bool:
    return home.engine.questioned == times


async def becomes(home: GatewayFixture, control: str) -> None:
    """Wait until the engine's `ThinkingControl` is this."""
    pool = home.gateway.pool
    await eventually(lambda: pool.first("annie", {}).control == control)


@live
async def test_a_caught_engine_is_held_from_then_on(tmp_path: Path, hasty: None) -> None:
    async with house(tmp_path) as home:
        home.engine.behaviour = LEAKS
        home.engine.play(*LEAKS)
        assert (await home.ask(stream=True)).text == "SECRET Hi."  # what had gone out could not be unsaid
        await becomes(home, "violated")
        assert await state(home) == "caught"
        home.engine.play(*LEAKS)
        assert (await home.ask(stream=True)).text == "Hi."
        lines = home.log.of("engine_caught_thinking")
        assert [(line["engine"], line["reason"]) for line in lines] == [("scripted", "orphan")]


@live
async def test_a_caller_alone_makes_no_engine_slow(tmp_path: Path, hasty: None) -> None:
    """A prompt can ask for any reply: our own questions decide, and one caller does not make us ask them all the time."""
    async with house(tmp_path) as home:
        for _ in range(4):
            home.engine.play(*LEAKS)
            await home.ask(stream=True, messages=[{"role": "user", "content": "Repeat what I said first."}])
        await eventually(lambda: home.engine.questioned == len(QUESTIONS))
        for _ in range(4):
            home.engine.play(*LEAKS)
            await home.ask(stream=True)
        await asyncio.sleep(0.1)
        assert home.engine.questioned == len(QUESTIONS)
        home.gateway.pool._backends["scripted"].doubt("another caller")
        await eventually(lambda: home.engine.questioned == 2 * len(QUESTIONS))
        assert home.gateway.pool.first("annie", {}).control == "verified" and await state(home) == "obeys"


@live
async def test_clean_probes_clear_an_engine(
    tmp_path: Path, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "RECHECK_SECONDS", 0.05)
    async with house(tmp_path) as home:
        home.engine.behaviour = LEAKS
        home.engine.play(*LEAKS)
        await home.ask(stream=True)
        await becomes(home, "violated")
        asked = home.engine.questioned
        await eventually(lambda: home.engine.questioned > asked + 2 * len(QUESTIONS))
        assert home.gateway.pool.first("annie", {}).control == "violated"
        home.engine.behaviour = None
        asked = home.engine.questioned
        await becomes(home, "verified")
        probes = (home.engine.questioned - asked) / len(QUESTIONS)
        assert backend.CLEAN_PROBES - 1 <= probes <= backend.CLEAN_PROBES + 2


SCHEMA = {"type": "string", "pattern": "^hm[<]/think>Hi$"}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
FORCED: dict[str, dict[str, Any]] = {
    "a pattern": {"response_format": FORM},
    "any JSON": {"response_format": {"type": "json_object"}},
    "a required call": {"tools": TOOLS, "tool_choice": "required"},
    "a named call": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "web_search"}}},
    "a begun answer": {"messages": [*HELLO, {"role": "assistant", "content": "hm</"}]},
    "a stop word": {"stop": ["Hi"]},
    "a biased token": {"logit_bias": {"42": 100}},
    "no end": {"min_tokens": 50},
}


@live
@pytest.mark.parametrize("asked", FORCED.values(), ids=FORCED.keys())
async def test_what_a_request_forces_is_no_evidence(
    tmp_path: Path, asked: dict[str, Any], hasty: None
) -> None:
    async with house(tmp_path) as home:
        home.engine.behaviour = LEAKS
        home.engine.always(*LEAKS)
        for _ in range(3):
            await home.ask(stream=True, **asked)
        line = await home.booked()
        assert "leak" in line["breaches"]
        assert (await home.metrics())("manners_breach_total") == 0
        assert home.gateway.reply_window.after("annie", "scripted") == ()
        await asyncio.sleep(0.05)
        assert home.engine.questioned == 0 and await state(home) == "obeys"


@live
async def test_what_a_raw_prompt_brings_is_no_evidence(tmp_path: Path, hasty: None) -> None:
    async with house(tmp_path) as home:
        home.engine.always(*LEAKS)
        await home.post("/v1/completions", {"model": "annie", "prompt": "<think>", "stream": True})
        await home.booked()
        assert (await home.metrics())("manners_breach_total") == 0
