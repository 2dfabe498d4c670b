"""When a thought is to be ended, and how: the limit's table, the meter, and the watch. Pure."""

import json
from typing import Any

import pytest

from app.api.thinking_budget import SLACK, ThoughtLimit, ThoughtWatch, thought_plan
from app.stream.holdback import UNBOUNDED, ThinkPolicy
from app.stream.pipeline import Pipeline, StreamPolicy
from app.stream.schema import Tools
from deploy.engine.abilities import Abilities
from deploy.engine.dialect import Thinking

RAW = Abilities(budgets=False, closing=(1, 2))
KEEPS = Abilities(budgets=True, closing=(1, 2))
LLAMA = Abilities(budgets=True, ends_thoughts=True)
UNKNOWN = Abilities()


@pytest.mark.parametrize(
    "thinking, abilities, limit",
    [
        (0, RAW, None),
        (None, RAW, None),
        (8, RAW, ThoughtLimit(8, False, "restart")),
        (8, KEEPS, ThoughtLimit(8 + SLACK, True, "restart")),
        (8, LLAMA, ThoughtLimit(8 + SLACK, True, "control")),
        (8, UNKNOWN, ThoughtLimit(8 + SLACK, True, None)),
    ],
)
def test_the_limit_of_a_thought(thinking: Thinking, abilities: Abilities, limit: ThoughtLimit | None) -> None:
    assert thought_plan(thinking, abilities).limit == limit


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


def test_a_thought_ends_at_its_last_token_even_inside_one_read() -> None:
    watch, pipeline = watched(ThoughtLimit(3, False, "restart"))
    assert not feed(watch, pipeline, ROLE + piece() * 2)
    assert feed(watch, pipeline, piece() * 5 + piece("</think>") + piece("Hello."))
    assert watch.due == "tokens"


def test_a_thought_is_not_ended_inside_a_call() -> None:
    tools = Tools([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])
    watch, pipeline = watched(ThoughtLimit(2, False, "restart"), tools)
    assert not feed(watch, pipeline, ROLE + piece("I call <tool_call>\n") + piece('{"name":') * 4)
    assert watch.due == "tokens" and not watch.over
