"""From samples to times: what is slow, what failed, what must not count, and what the judge takes."""

from dataclasses import replace
from typing import Any

import pytest

from gates.contracts.sample import Sample, TimedRead, TransportFault
from gates.run.latency_readings import (
    CACHE_UNKNOWN,
    LatencyReading,
    latency_readings,
    timings,
    void_summary,
)
from gates.run.latency_schedule import LatencySlot
from tests.gates.run.parts import sample
from tests.script import DONE, call, event, finish, role, text, thought

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
    slot = slot or LatencySlot("hello", 500, "steady", 0, 0)
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
    assert [t.value for t in timings([one], regime="steady", first_stage_blocks=8)] == [None, None, None]


@pytest.mark.parametrize(
    "regime, cached, void",
    [
        ("steady", 80, ""), ("steady", 50, ""), ("steady", 49, "49% of the prompt was cached, in the steady regime"),
        ("steady", 0, "0% of the prompt was cached, in the steady regime"),
        ("cold", 0, ""), ("cold", 5, ""), ("cold", 6, "6% of the prompt was cached, in the cold regime"),
        ("cold", None, CACHE_UNKNOWN),
        ("steady", None, CACHE_UNKNOWN),
    ],
)  # fmt: skip
def test_a_reply_of_another_regime_does_not_count(regime: str, cached: int | None, void: str) -> None:
    one = reading(*spoken(cached=cached), slot=LatencySlot("hello", 500, regime, 0, 0))

    assert one.void == void
    assert bool(list(timings([one], regime=regime, first_stage_blocks=8))) == (not void)


def test_what_did_not_count_is_told_with_its_commonest_reason() -> None:
    mute, warm = spoken(cached=None), spoken(cached=9)
    every = [
        *(reading(*mute, slot=LatencySlot("hello", 500, "steady", n, 0)) for n in range(2)),
        reading(*warm, slot=LatencySlot("hello", 500, "steady", 2, 0)),
        reading(*mute, slot=LatencySlot("hello", 500, "cold", 0, 0)),
        reading(*spoken(), arm="baseline"),
    ]

    assert void_summary(every, "candidate") == f"3 did not count: {CACHE_UNKNOWN}"
    assert "--enable-prompt-tokens-details" in CACHE_UNKNOWN
    assert void_summary(every, "baseline") == ""
