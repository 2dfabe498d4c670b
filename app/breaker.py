"""A circuit breaker for one engine: after some failures in a row it gets no requests, only probes.

A value and a table. `OPEN` waits out a pause; then exactly one probe is let through (`HALF_OPEN`),
and its outcome closes the breaker or opens it for twice as long. Callers' requests are never the
probe. An illegal pair raises and changes nothing. Times are monotonic seconds.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

FAILURES = 3
"""Failures in a row that open it."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0


class State(StrEnum):
    """Only `CLOSED` lets requests through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Event(StrEnum):
    """What may happen: an outcome, or the start of the one probe."""

    SUCCESS = "success"
    FAILURE = "failure"
    PROBE = "probe"


class IllegalEvent(Exception):
    """A bug: this event cannot happen in this state."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """Its state, failures in a row, the present pause and the end of it."""

    state: State = State.CLOSED
    failures: int = 0
    pause: float = FIRST_PAUSE
    until: float = 0.0

    def may_probe(self, now: float) -> bool:
        """Whether the pause is over and no probe is under way."""
        return self.state is State.OPEN and now >= self.until


def step(breaker: Breaker, event: Event, now: float) -> Breaker:
    """The breaker after an event. Raises IllegalEvent."""
    try:
        after = _TABLE[breaker.state, event]
    except KeyError:
        raise IllegalEvent(f"{event} while {breaker.state}") from None
    return after(breaker, now)


def _closed(breaker: Breaker, now: float) -> Breaker:
    return Breaker()


def _count(breaker: Breaker, now: float) -> Breaker:
    failures = breaker.failures + 1
    if failures < FAILURES:
        return replace(breaker, failures=failures)
    return Breaker(State.OPEN, failures, FIRST_PAUSE, now + FIRST_PAUSE)


def _probing(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, state=State.HALF_OPEN)


def _open_longer(breaker: Breaker, now: float) -> Breaker:
    pause = min(breaker.pause * 2, LONGEST_PAUSE)
    return Breaker(State.OPEN, breaker.failures + 1, pause, now + pause)


def _same(breaker: Breaker, now: float) -> Breaker:
    return breaker


_TABLE = {
    (State.CLOSED, Event.SUCCESS): _closed,
    (State.CLOSED, Event.FAILURE): _count,
    # Requests that were under way when it opened still end, one way or the other. A token that one
    # of them gets is as good as a probe's; a failure says nothing new.
    (State.OPEN, Event.SUCCESS): _closed,
    (State.OPEN, Event.FAILURE): _same,
    (State.OPEN, Event.PROBE): _probing,
    (State.HALF_OPEN, Event.SUCCESS): _closed,
    (State.HALF_OPEN, Event.FAILURE): _open_longer,
}
