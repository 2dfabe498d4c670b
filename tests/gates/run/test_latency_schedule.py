"""The latency schedule: turns of the arms, silence, new prompts; the same every time."""

from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

from gates.contracts.case import Sampling
from gates.contracts.errors import RunError
from gates.contracts.sample import Sample, TimedRead, TransportFault
from gates.run.latency import (
    CACHE_UNKNOWN,
    LatencyReading,
    LatencySlot,
    Schedule,
    latency_readings,
    latency_requests,
    slot_of,
    timings,
)
from gates.run.request import PlannedRequest
from tests.gates.run.parts import SUITE, arm, case, sample, target
from tests.script import DONE, call, event, finish, role, text, thought

PROMPTS = [case("hello"), case("fact"), case("find", tools=True)]
SMALL = Schedule(buckets=(200, 600), blocks=4)
TWO = ("latency:candidate", "latency:baseline")
THREE = (*TWO, "latency:gateway")


def asks(schedule: Schedule = SMALL, names: tuple[str, ...] = TWO) -> tuple[PlannedRequest, ...]:
    where = target("http://127.0.0.1:1")
    return latency_requests(SUITE, [arm(name, where) for name in names], PROMPTS, Sampling(), schedule)


def measured(every: tuple[PlannedRequest, ...]) -> list[PlannedRequest]:
    return [a for a in every if a.recorded]


@pytest.mark.parametrize("names", [TWO, THREE])
def test_a_prompt_goes_round_the_arms_forth_and_back(names: tuple[str, ...]) -> None:
    rounds = [
        [a.key.arm for a in group]
        for _, group in groupby(measured(asks(names=names)), lambda a: (a.key.case, a.key.repeat // 2))
    ]

    assert all(r == r[::-1] and set(r) == set(names) and len(r) == 2 * len(names) for r in rounds)
    assert len({tuple(r) for r in rounds}) > 1


def test_the_turn_before_is_asked_first() -> None:
    for a in measured(asks()):
        assert a.before is not None
        assert a.before["messages"] == a.request["messages"][:-2] and a.before["max_tokens"] == 1
        assert a.before["messages"][-1]["role"] == "user"
        assert a.before.get("tools") == a.request.get("tools")


def test_an_extension_goes_on_where_the_first_stage_ended() -> None:
    later = measured(asks(replace(SMALL, first_block=4)))

    assert {a.key.repeat // 2 for a in later} == {4, 5, 6, 7}
    assert {a.key for a in later}.isdisjoint(a.key for a in measured(asks()))


def test_a_sample_tells_its_slot() -> None:
    slots = {(a.key.case, a.key.repeat): slot_of(a.key.case, a.key.repeat) for a in measured(asks())}

    assert LatencySlot("find", 600, 3, 1) in slots.values()
    assert all((slot.label, slot.repeat) == key for key, slot in slots.items())
    for odd in ("hello", "hello@", "hello@x:steady", "@5:steady", "hello@5:cold", "hello@500"):
        with pytest.raises(RunError, match="no sample of the latency gate"):
            slot_of(odd, 0)


# ------------------------------------------------------------------------------------------ contexts


Timed = list[tuple[float, bytes]]


def usage(completion: int, prompt: int = 100, cached: int | None = 80) -> bytes:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return event(
        {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **details}}
    )


def taken(
    *reads: tuple[float, bytes], slot: LatencySlot | None = None, arm: str = "candidate", **more: Any
) -> Sample:
    """A latency sample whose reads came at so many ms."""
    slot = slot or LatencySlot("hello", 500, 0, 0)
    bare = sample(arm=f"latency:{arm}", case=slot.label, repeat=slot.repeat)
    return replace(bare, reads=tuple(TimedRead(round(ms * 1e6), data) for ms, data in reads), **more)


def spoken(first: float = 90.0, tokens: int = 21, **counts: Any) -> Timed:
    """A reply whose first word comes after so many ms, the others 40 ms apart."""
    words = [(first + 40 * n, text(" word" if n % 7 else "Well. ")) for n in range(tokens)]
    end = words[-1][0] + 1
    return [(first - 50, role()), *words, (end, finish()), (end, usage(tokens, **counts) + DONE)]


def reading(*reads: tuple[float, bytes], **more: Any) -> LatencyReading:
    (one,) = latency_readings([taken(*reads, **more)])
    return one


@pytest.mark.parametrize(
    "reads",
    [
        spoken(tokens=8),
        [(90.0, call("f", "{}")), (900.0, finish("tool_calls") + usage(40) + DONE)],
        [
            *((float(n), b": ping\n\n") for n in range(9)),
            (90.0, text("One")),
            (91.0, text(" two") * 30 + finish() + usage(40) + DONE),
        ],
        [(90.0 + n, text(" word")) for n in range(30)] + [(130.0, finish() + DONE)],
    ],
    ids=["short", "tool-call", "in-a-heap", "no-usage"],
)
def test_what_has_no_rate_is_given_none(reads: Timed) -> None:
    assert reading(*reads).decode is None and reading(*reads).failed == ""


FAILURES: dict[str, tuple[Timed, dict[str, Any], str]] = {
    "lost": (
        [],
        {"fault": TransportFault("timeout", "nothing came"), "status": None},
        "timeout: nothing came",
    ),
    "retried": (spoken(), {"retries": (TransportFault("status", "HTTP 503"),)}, "status: HTTP 503"),
    "refused": ([(9.0, b'{"error":{"message":"too long"}}')], {"status": 400}, "error: too long"),
    "empty": ([(9.0, role()), (90.0, finish() + usage(1) + DONE)], {}, "nothing was said"),
    "only-thought": ([(9.0, thought("Hm.")), (90.0, finish() + usage(9) + DONE)], {}, "nothing was said"),
}


@pytest.mark.parametrize("reads, more, why", FAILURES.values(), ids=FAILURES)
def test_a_request_that_failed_is_infinitely_slow(reads: Timed, more: dict[str, Any], why: str) -> None:
    one = reading(*reads, **more)

    assert (one.failed, one.ttft, one.decode, one.void) == (why, None, None, "")
    assert [t.value for t in timings([one], first_stage_blocks=8)] == [None, None, None]


@pytest.mark.parametrize(
    "cached, void",
    [
        (80, ""),
        (50, ""),
        (49, "49% of the prompt was cached"),
        (0, "0% of the prompt was cached"),
        (None, CACHE_UNKNOWN),
    ],
)
def test_a_reply_whose_prompt_was_not_cached_does_not_count(cached: int | None, void: str) -> None:
    one = reading(*spoken(cached=cached))

    assert one.void == void
    assert bool(list(timings([one], first_stage_blocks=8))) == (not void)
