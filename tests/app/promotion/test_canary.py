"""The canary sings for annie, is silent for the stranger, and notices an engine that is broken."""

import tomllib
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from app.config.config import Promotion
from app.promotion import canary
from app.promotion.canary import ALWAYS, QUESTIONS, ROUNDS, Canary, canary_for, shapes, warm
from app.promotion.state_machine import EffectError
from gates.run.http import RequestTimeouts
from gates.suite.load import load_suite
from tests.gates.run.parts import target
from tests.script import CloseNow, Hang, Head, Raw, Say, reply, role, status, text
from tests.scripted_engine import ScriptedEngine

NANO = load_suite("annie-nano")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def few(count: int) -> Canary:
    """The first questions."""
    whole = canary_for(NANO)
    return replace(whole, cases=whole.cases[:count])


# ---------------------------------------------------------------------------- over a broken engine


@pytest.mark.parametrize(
    "said, gate",
    [
        ("!!!!!!!!!!!!!!!!!!!!!!!!", "loop"),
        ("<think>The user greets me.</think>Hello!", "leak"),
        ('<tool_call>{"name": "x", "arguments": {}}</tool_call>', "raw_call"),
        ("", "empty"),
        ("# Hello\n\n- one\n- two", "no_markdown"),
    ],
)
async def test_each_bad_habit_is_named(said: str, gate: str) -> None:
    async with ScriptedEngine() as engine:
        engine.play(*reply(said))
        with pytest.raises(EffectError, match=f"{gate}: 1 of 1 bad"):
            await canary.probe(target(engine), few(1))


@pytest.mark.parametrize("steps", [(CloseNow(),), (Head(), Say(role()), Say(text("Hel")), Hang())])
async def test_an_engine_that_goes_or_hangs_is_not_waited_for_again(
    steps: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary, "TIMEOUTS", RequestTimeouts(connect=1.0, idle=0.1, total=1.0))
    async with ScriptedEngine() as engine:
        engine.play(*steps)  # type: ignore[arg-type]
        with pytest.raises(EffectError, match="1 of 1 bad"):
            await canary.probe(target(engine), few(5))


@pytest.mark.parametrize(
    "piece", [b"HTTP/1.1 100 \r\n\r\n", b"data: {}\n\n", b"<t"], ids=["interim", "events", "one line"]
)
async def test_an_endless_answer_is_short_work(piece: bytes) -> None:
    """Callers are served by the same event loop: what is read of it is bounded."""
    async with ScriptedEngine() as engine:
        engine.always(Raw(b"" if piece.startswith(b"HTTP") else HEAD), Raw(piece * 800_000), Hang())
        with pytest.raises(EffectError, match="the reply has more than 1048576 bytes or 16384 lines"):
            await canary.probe(target(engine), few(5))
        assert len(engine.requests) == 1, "the next question is not asked"


async def test_what_passes_says_how_many_answers_were_good() -> None:
    async with ScriptedEngine() as engine:
        told = await canary.probe(target(engine), replace(few(1), least=dict.fromkeys(canary.EXPECTED, 0.0)))
    assert told["asked"] == 1 and told["good"]["leak"] == [1, 1]  # type: ignore[index]


# ------------------------------------------------------------------------------------- the verdict


LEAST = tomllib.loads(QUESTIONS.read_text("utf-8"))["least"]


@pytest.mark.parametrize(
    "gate, good, bad, sings",
    [("leak", 20, 0, True), ("leak", 19, 1, False), ("loop", 19, 1, False), ("raw_call", 19, 1, False),
     ("no_markdown", 16, 4, True), ("no_markdown", 15, 5, False), ("factual", 3, 2, True), ("factual", 2, 3, False)],
)  # fmt: skip
def test_manners_have_no_exception_and_knowledge_has_a_few(
    gate: str, good: int, bad: int, sings: bool
) -> None:
    answers = {gate: [("case", "")] * good + [("case", "no")] * bad}
    assert (canary.failure(answers, LEAST) is None) is sings


# ----------------------------------------------------------------------------------- the questions


@pytest.mark.parametrize("name", ["annie", "annie-nano"])
def test_the_shipped_questions_are_of_the_suite_and_ask_for_everything(name: str) -> None:
    asked = canary_for(load_suite(name))
    assert len(asked.cases) >= 15
    assert {"factual", "reasoning", "tools"} <= {gate for case in asked.cases for gate in case.gates}
    assert asked.least.keys() <= {*ALWAYS, *canary.EXPECTED}


def test_a_suite_of_ones_own_is_asked_its_named_cases() -> None:
    own = replace(NANO, name="my-own")
    assert [case.id for case in canary_for(own).cases] == [case.id for case in NANO.cases if case.named]
    with pytest.raises(EffectError, match="none is named"):
        canary_for(replace(own, cases=tuple(case for case in NANO.cases if not case.named)))


async def test_a_dialect_without_a_word_for_the_sampling_is_a_failure_in_one_line() -> None:
    asked = few(1)
    odd = replace(asked, sampling=replace(asked.sampling, top_k=5))
    with pytest.raises(EffectError, match="top_k"):
        await canary.probe(target("http://127.0.0.1:1", "openai"), odd)


# ------------------------------------------------------------------------------------- the warm-up

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
