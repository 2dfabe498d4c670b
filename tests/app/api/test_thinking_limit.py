"""When a thought is to be ended, and how: the limit's table, the meter, and the watch. Pure."""

import json
from typing import Any

import pytest

from app.api.thinking_budget import SLACK, ThoughtLimit, ThoughtWatch, thought_limit
from app.stream.holdback import UNBOUNDED, ThinkPolicy
from app.stream.meter import ThoughtMeter
from app.stream.pipeline import Pipeline, StreamPolicy
from app.stream.schema import Tools
from deploy.engine.abilities import Abilities
from deploy.engine.dialect import Thinking
from gates.reply.events import CallStart, Text, Thought

RAW = Abilities(budgets=False, closing=(1, 2))
KEEPS = Abilities(budgets=True, closing=(1, 2))
LLAMA = Abilities(budgets=True, ends_thoughts=True)
UNKNOWN = Abilities()


@pytest.mark.parametrize(
    "thinking, milliseconds, abilities, limit",
    [
        (0, None, RAW, None),
        (0, 500, RAW, None),
        (None, None, RAW, None),
        (8, None, RAW, ThoughtLimit(8, None, False, "restart")),
        (8, None, KEEPS, ThoughtLimit(8 + SLACK, None, True, "restart")),
        (8, None, LLAMA, ThoughtLimit(8 + SLACK, None, True, "control")),
        (8, None, UNKNOWN, ThoughtLimit(8 + SLACK, None, True, None)),
        (None, 500, RAW, ThoughtLimit(None, 0.5, False, "restart")),
        (None, 500, LLAMA, ThoughtLimit(None, 0.5, True, "control")),
        (8, 500, RAW, ThoughtLimit(8, 0.5, False, "restart")),
    ],
)
def test_the_limit_of_a_thought(
    thinking: Thinking, milliseconds: int | None, abilities: Abilities, limit: ThoughtLimit | None
) -> None:
    assert thought_limit(thinking, milliseconds, abilities) == limit


def piece(said: str = "hm ", ids: tuple[int, ...] | None = (5,), **more: Any) -> bytes:
    """One chunk as vLLM without parsers sends it, token ids and all."""
    choice = {"index": 0, "delta": {"content": said}, "finish_reason": None, "token_ids": ids}
    return b"data: " + json.dumps({"id": "c-9", "choices": [choice], **more}).encode() + b"\n\n"


ROLE = b'data: {"id":"c-9","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[9,8]}\n\n'


def watched(limit: ThoughtLimit, tools: Tools | None = None) -> tuple[ThoughtWatch, Pipeline]:
    """A watch over a reply of an engine that shows no opening tag."""
    watch = ThoughtWatch(limit)
    return watch, Pipeline(StreamPolicy(ThinkPolicy(True, UNBOUNDED, opened=True), tools), watch.meter)


def feed(watch: ThoughtWatch, pipeline: Pipeline, data: bytes) -> bool:
    """Whether the thought is to end within this read."""
    looks = [watch.look(events, pipeline) for events in pipeline.feed_each(data)]
    return any(looks)


METERED: list[tuple[bytes, tuple[str, list[int], list[int], int]]] = [
    (ROLE + piece(ids=(5, 6)) + piece(ids=None) + piece(ids=(7,)), ("c-9", [9, 8], [5, 6, 7], 3)),
    (b'{"id":"x","choices":[{"index":0,"delta":{}}],"timings":{"predicted_n":11}}', ("x", [], [], 11)),
    *((odd, ("", [], [], 0)) for odd in (b"", b"[DONE]", b"{", b'{"id":7}', b'{"choices":[{"token_ids":["a"]}]}')),
]  # fmt: skip


@pytest.mark.parametrize(("said", "metered"), METERED)
def test_the_meter_reads_vllms_ids_and_llama_servers_count_and_nothing_else(
    said: bytes, metered: tuple[str, list[int], list[int], int]
) -> None:
    meter = ThoughtMeter()
    for line in said.split(b"\n\n"):
        meter.feed(line.removeprefix(b"data: "))
    assert (meter.reply_id, meter.prompt, meter.tokens, meter.count) == metered
    if metered[-1] == 0:
        meter.pieces = 4
    assert meter.count == (metered[-1] or 4), "pieces count where the engine counts nothing"


def test_a_thought_ends_at_its_last_token_even_inside_one_read() -> None:
    watch, pipeline = watched(ThoughtLimit(3, None, False, "restart"))
    assert not feed(watch, pipeline, ROLE + piece() * 2)
    assert feed(watch, pipeline, piece() * 5 + piece("</think>") + piece("Hello."))
    assert watch.due == "tokens"


def test_tokens_over_the_budget_that_one_step_made_are_not_thought() -> None:
    watch, pipeline = watched(ThoughtLimit(3, None, False, "restart"))
    assert feed(watch, pipeline, ROLE + piece(ids=(1, 2, 3, 4, 5)))
    assert watch.meter.tokens == [1, 2, 3]


def test_time_that_is_up_before_the_first_token_ends_the_thought_at_it() -> None:
    watch, pipeline = watched(ThoughtLimit(None, 0.5, False, "restart"))
    watch.time_is_up()
    assert not watch.look((), pipeline)
    assert feed(watch, pipeline, ROLE + piece())


@pytest.mark.parametrize("event", [Text(0, "Hi"), CallStart(0, 0, "f")])
def test_what_the_caller_sees_ends_the_watch(event: Text | CallStart) -> None:
    watch, pipeline = watched(ThoughtLimit(1, None, False, "restart"))
    watch.time_is_up()
    assert not watch.look([Thought(0, "hm"), event], pipeline) and watch.over


def test_a_thought_is_not_ended_inside_a_call() -> None:
    tools = Tools([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])
    watch, pipeline = watched(ThoughtLimit(2, None, False, "restart"), tools)
    assert not feed(watch, pipeline, ROLE + piece("I call <tool_call>\n") + piece('{"name":') * 4)
    assert watch.due == "tokens" and not watch.over


@pytest.mark.parametrize("means, first", [("restart", piece()), ("control", b'data: {"choices":[]}\n\n')])
def test_a_thought_is_not_ended_before_what_that_needs_is_known(means: Any, first: bytes) -> None:
    watch, pipeline = watched(ThoughtLimit(0, None, False, means))
    assert not feed(watch, pipeline, first)


def test_what_is_held_of_an_ended_thought_is_thought() -> None:
    watch, pipeline = watched(ThoughtLimit(2, None, False, "restart"))
    feed(watch, pipeline, ROLE + piece("one ") + piece("two </thi"))
    assert pipeline.cut() == [Thought(0, "one two ", "orphan")]
