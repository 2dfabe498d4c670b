"""Warming: asked in every shape until the times have settled, and never for ever."""

import asyncio
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from app.promotion.state_machine import EffectError
from app.promotion.warmup import RequestShape, WarmupPlan, _Warmup, settled, shapes, warm
from tests.gates.run.parts import target
from tests.scale import PATIENCE
from tests.script import CloseNow, Hang, Head, Say, reply, role, status
from tests.scripted_engine import ScriptedEngine

ROOMY = WarmupPlan(buckets=(50, 200), concurrency=(2,), floor_s=5.0)
"""Times within five seconds of each other agree: three rounds, on any machine."""


async def test_it_asks_every_shape_in_every_round_and_no_prompt_twice() -> None:
    async with ScriptedEngine() as engine:
        told = await warm(target(engine), ROOMY, 2000)
        posted = [seen.body for seen in engine.requests if seen.method == "POST"]
    asked = posted[2:]  # behind the two that calibrate
    prompts = Counter(str(body["messages"]) for body in asked)
    assert prompts.most_common(1)[0][1] == 1
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in asked)
    # Three shapes, three rounds of three (of two pairs, where two ask at once).
    assert told["requests"] == len(asked) == 3 * (2 * 3 + 4)


@pytest.mark.parametrize("steps", [(CloseNow(),), status(500), status(400, b"no"), reply("")])
async def test_an_engine_that_does_not_answer_cannot_be_warmed(steps: Any) -> None:
    async with ScriptedEngine() as engine:
        engine.play(*reply("."))
        engine.play(*reply("."))
        engine.play(*steps)
        with pytest.raises(EffectError, match="warm_failed: 50 tokens: "):
            await warm(target(engine), ROOMY)


@pytest.mark.parametrize("slow, refused", [(1, False), (1000, True)])
async def test_one_that_stays_slow_is_refused_and_a_slow_first_round_is_forgiven(
    monkeypatch: pytest.MonkeyPatch, slow: int, refused: bool
) -> None:
    """The times are made up: the first `slow` requests of each shape take nine seconds, the others a tenth."""
    ask_and_time, asked = _Warmup._time, Counter[RequestShape]()

    async def time(self: _Warmup, shape: RequestShape) -> float:
        await ask_and_time(self, shape)
        asked[shape] += 1
        return 9.0 if asked[shape] <= slow else 0.1

    monkeypatch.setattr(_Warmup, "_time", time)
    limits = replace(ROOMY, slowest_s=1.0, each=1)
    expected = pytest.raises(EffectError, match="warm_slow") if refused else nullcontext()
    async with ScriptedEngine() as engine:
        with expected:
            await warm(target(engine), limits)


async def test_it_is_bounded_in_rounds_and_in_time() -> None:
    async with ScriptedEngine() as engine:
        restless = replace(ROOMY, tolerance=-1.0, floor_s=0.0, rounds=4)
        with pytest.raises(EffectError, match="warm_unsettled: not settled after 4 rounds"):
            await warm(target(engine), restless)
        engine.play(*reply("."))
        engine.play(*reply("."))
        engine.play(Head(), Say(role()), Hang())
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(EffectError, match="warm_unsettled: its times had not settled after 0.5 s"):
                await warm(target(engine), replace(ROOMY, seconds=0.5))


@pytest.mark.parametrize(
    "medians, done",
    [
        ([], False),
        ([1.0, 1.0], False),
        ([1.0, 1.0, 1.0], True),
        ([9.0, 1.0, 1.1, 1.05], True),
        ([9.0, 1.4, 1.0, 1.0], False),  # still getting faster
        ([4.0, 3.0, 2.0, 1.5, 1.0, 0.7], False),
        ([1.0, 1.9, 1.2, 1.1, 1.8, 1.3], True),  # a busy host: no better than before
        ([0.010, 0.030, 0.012], True),  # under the floor
    ],
)
def test_settled_is_when_more_rounds_would_change_nothing(medians: list[float], done: bool) -> None:
    assert settled(medians, WarmupPlan()) is done


def test_shapes_are_what_the_context_holds() -> None:
    every = shapes(WarmupPlan(), 8192)
    assert [shape.tokens for shape in every[:4]] == [50, 500, 2000, 4000]
    assert [shape.together for shape in every[4:]] == [2, 4]
    assert {shape.tokens for shape in shapes(WarmupPlan(), 1024)} == {50, 500}
    assert {shape.tokens for shape in shapes(WarmupPlan(buckets=(9000,)), 1024)} == {9000}
    assert len({shape.name for shape in every}) == len(every)
