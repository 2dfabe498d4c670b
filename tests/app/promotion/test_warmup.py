"""Warming: a candidate is asked in every shape, with no prompt twice, and not for ever."""

from collections import Counter
from typing import Any

import pytest

from app.config.config import Promotion
from app.promotion.state_machine import EffectError
from app.promotion.warmup import ROUNDS, shapes, warm
from tests.gates.run.parts import target
from tests.script import CloseNow, Hang, Head, Say, reply, role, status
from tests.scripted_engine import ScriptedEngine

FEW = Promotion(warm_tokens=(50, 200), warm_at_once=(2,))


async def test_it_asks_every_shape_in_every_round_and_no_prompt_twice() -> None:
    async with ScriptedEngine() as engine:
        told = await warm(target(engine), FEW, context=2000)
        posted = [seen.body for seen in engine.requests if seen.method == "POST"]
    asked = posted[2:]  # behind the two that calibrate
    prompts = Counter(str(body["messages"]) for body in asked)
    assert prompts.most_common(1)[0][1] == 1
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in asked)
    assert told["requests"] == len(asked) == ROUNDS * (1 + 1 + 2)


@pytest.mark.parametrize("steps", [(CloseNow(),), status(500), status(400, b"no"), reply("")])
async def test_an_engine_that_does_not_answer_cannot_be_warmed(steps: Any) -> None:
    async with ScriptedEngine() as engine:
        engine.play(*reply("."))
        engine.play(*reply("."))
        engine.play(*steps)
        with pytest.raises(EffectError, match="warm_failed: 50 tokens: "):
            await warm(target(engine), FEW)


async def test_it_is_bounded_in_time() -> None:
    async with ScriptedEngine() as engine:
        engine.always(Head(), Say(role()), Hang())
        with pytest.raises(EffectError, match=r"warm_failed: not warm after 0\.5 s"):
            await warm(target(engine), FEW.model_copy(update={"warm_seconds": 0.5}))


def test_shapes_are_what_the_context_holds() -> None:
    long = [(50, 1), (500, 1), (2000, 1), (4000, 1), (50, 2), (50, 4)]
    assert shapes(Promotion(), 8192) == long
    assert shapes(Promotion(), 1024) == [*long[:2], *long[4:]]
    assert shapes(Promotion(warm_tokens=(9000,), warm_at_once=()), 1024) == [(9000, 1)]
