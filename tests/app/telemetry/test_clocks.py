"""The clocks: each ends at its own event and at no other."""

from typing import Any

import pytest

from app.stream.pipeline import Pipeline
from app.telemetry.clocks import Clocks
from gates.reply.events import Event
from tests.app.stream.wire import chunk, event, policy

ROLE = chunk({"role": "assistant", "content": ""})
NULL_ROLE = chunk({"role": "assistant", "content": None})
EMPTY = chunk({"content": ""})
PROGRESS = chunk({"role": "assistant", "content": None}, prompt_progress={"processed": 5})
USAGE = event({"choices": [], "usage": {"completion_tokens": 3}})
THOUGHT = chunk({"reasoning": "Hm."})
FINISH = chunk({}, "stop")
CALL = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "now", "arguments": "{}"}}]})


def watch(*reads: bytes, thinking: bool = True) -> Clocks:
    """Clocks of a reply whose reads arrive at 1, 2, 3, … seconds."""
    pipeline, clocks, tokens = Pipeline(policy(thinking=thinking)), Clocks(0.0), 0
    for now, data in enumerate(reads, start=1):
        events: list[Event] = pipeline.feed(data)
        if pipeline.tokens and not tokens:
            clocks.token(now)
        tokens = pipeline.tokens
        clocks.feed(events, now)
    return clocks


TABLE: dict[str, tuple[tuple[bytes, ...], Any, Any, Any]] = {
    "role, empty, progress and usage frames stop nothing": ((ROLE, NULL_ROLE, EMPTY, PROGRESS, USAGE), None, None, None),
    "a thought is a token and no content": ((ROLE, THOUGHT, USAGE), 2, None, None),
    "text after a thought is content": ((ROLE, THOUGHT, chunk("Hi")), 2, 3, None),
    "a sentence ends where space follows its end": ((ROLE, chunk("Hi."), chunk(" Yes"), FINISH), 2, 2, 3),
    "a decimal point ends no sentence": ((chunk("It is 3."), chunk("5 m"), chunk(". Yes")), 1, 1, 3),
    "a question with a closing quote": ((chunk('"Why?'), chunk('" I said')), 1, 1, 2),
    "a reply of one sentence is a sentence at its finish": ((chunk("Hello!"), chunk(""), FINISH), 1, 1, 3),
    "a danda ends a sentence": ((chunk("ನಮಸ್ಕಾರ। ಹೇ"),), 1, 1, 1),
    "a call is content and no sentence": ((ROLE, CALL, FINISH), 2, 2, None),
    "held text is a token before it is content": ((chunk("<thin"), chunk(" air")), 1, 2, None),
}  # fmt: skip


@pytest.mark.parametrize("reads, token, content, sentence", TABLE.values(), ids=TABLE.keys())
def test_each_clock_ends_at_its_own_event(
    reads: tuple[bytes, ...], token: Any, content: Any, sentence: Any
) -> None:
    clocks = watch(*reads)
    assert (clocks.first_token, clocks.first_content, clocks.first_sentence) == (token, content, sentence)


def test_the_gap_is_between_visible_pieces_only() -> None:
    assert watch(chunk("X"), THOUGHT, THOUGHT, chunk("b"), chunk("c")).max_gap == 3
    assert watch(THOUGHT, THOUGHT, THOUGHT, chunk("X")).max_gap == 0


def test_time_per_output_token_spans_the_tokens_after_the_first() -> None:
    clocks = watch(ROLE, THOUGHT, chunk("X"), chunk("b"), FINISH)
    assert clocks.time_per_output_token(5) == pytest.approx((4 - 2) / 4)
    assert clocks.time_per_output_token(1) is None
    assert watch(ROLE).time_per_output_token(5) is None
