"""A circuit breaker for one engine, as a table: which engine gets requests, and when it is probed.

Most failures of a request may be the request's own doing: an engine answers 500 to a history that its
template cannot render, and a prompt that is too long makes it time out. So such a `FAILURE` opens nothing.
It makes the breaker `SUSPECT`: requests still pass, and a probe is due at once. A probe that streams clears
the engine, one that fails opens the breaker. Only what no request can cause counts directly: an engine
that takes no connection (`UNREACHABLE`), and probes that fail while nothing else is asked.

    CLOSED     takes requests
    SUSPECT    takes requests; a probe decides
    OPEN       takes none; waits out a pause
    HALF_OPEN  takes none; a probe decides

An illegal pair raises and changes nothing. Times are monotonic seconds.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

FAILURES = 3
"""Failures in a row that open it, of those that no request can cause."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
PROBE_SECONDS_APART = 1.0
"""A suspected engine is probed no more often than this: a probe costs it a completion of a few tokens."""


class State(StrEnum):
    """See above."""

    CLOSED = "closed"
    SUSPECT = "suspect"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Event(StrEnum):
    """What may happen: the outcome of a request, the start of a probe, the outcome of a probe."""

    SUCCESS = "success"
    """A request got its first token."""
    FAILURE = "failure"
    """A request failed, perhaps by its own fault."""
    UNREACHABLE = "unreachable"
    """The engine took no connection."""
    PROBE = "probe"
    PROBE_PASSED = "probe_passed"
    PROBE_FAILED = "probe_failed"
    PROBE_CROWDED_OUT = "probe_crowded_out"
    """The probe got no token in time, but a running reply did: the engine is alive and has no room."""


class IllegalEvent(Exception):
    """A bug: this event cannot happen in this state."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """Its state, failures in a row, the present pause, and when the next probe may begin."""

    state: State = State.CLOSED
    failures: int = 0
    pause: float = FIRST_PAUSE
    until: float = 0.0

    @property
    def passes(self) -> bool:
        """Whether requests may be sent."""
        return self.state in (State.CLOSED, State.SUSPECT)

    def may_probe(self, now: float) -> bool:
        """Whether a probe is wanted and may begin now."""
        return self.state in (State.SUSPECT, State.OPEN) and now >= self.until


def step(breaker: Breaker, event: Event, now: float) -> Breaker:
    """The breaker after an event. Raises IllegalEvent."""
    try:
        after = _TABLE[breaker.state, event]
    except KeyError:
        raise IllegalEvent(f"{event} while {breaker.state}") from None
    return after(breaker, now)


def _close(breaker: Breaker, now: float) -> Breaker:
    return Breaker()


def _clear(breaker: Breaker, now: float) -> Breaker:
    # `until` stays: the next suspicion may not be probed sooner.
    return Breaker(until=breaker.until) if breaker.until > now else Breaker()


def _suspect(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, state=State.SUSPECT)


def _count(breaker: Breaker, now: float) -> Breaker:
    failures = breaker.failures + 1
    if failures >= FAILURES:
        return _open(replace(breaker, failures=failures), now)
    return replace(breaker, state=State.SUSPECT, failures=failures)


def _probing(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, until=now + PROBE_SECONDS_APART)


def _half_open(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, state=State.HALF_OPEN)


def _open(breaker: Breaker, now: float) -> Breaker:
    return Breaker(State.OPEN, max(breaker.failures, 1), FIRST_PAUSE, now + FIRST_PAUSE)


def _open_longer(breaker: Breaker, now: float) -> Breaker:
    pause = min(breaker.pause * 2, LONGEST_PAUSE)
    return Breaker(State.OPEN, breaker.failures + 1, pause, now + pause)


def _open_again(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, state=State.OPEN, until=now + breaker.pause)


def _same(breaker: Breaker, now: float) -> Breaker:
    return breaker


_TABLE = {
    (State.CLOSED, Event.SUCCESS): _clear,
    (State.CLOSED, Event.FAILURE): _suspect,
    (State.CLOSED, Event.UNREACHABLE): _count,
    # Of an idle engine; or of one that gave somebody a token while the probe ran.
    (State.CLOSED, Event.PROBE_PASSED): _clear,
    (State.CLOSED, Event.PROBE_FAILED): _count,
    (State.CLOSED, Event.PROBE_CROWDED_OUT): _same,
    (State.SUSPECT, Event.SUCCESS): _clear,
    (State.SUSPECT, Event.FAILURE): _same,
    (State.SUSPECT, Event.UNREACHABLE): _count,
    (State.SUSPECT, Event.PROBE): _probing,
    (State.SUSPECT, Event.PROBE_PASSED): _clear,
    (State.SUSPECT, Event.PROBE_FAILED): _open,
    (State.SUSPECT, Event.PROBE_CROWDED_OUT): _clear,
    # Requests that were under way when it opened still end. A token that one of them gets is as good
    # as a probe's; a failure says nothing new.
    (State.OPEN, Event.SUCCESS): _close,
    (State.OPEN, Event.FAILURE): _same,
    (State.OPEN, Event.UNREACHABLE): _same,
    (State.OPEN, Event.PROBE): _half_open,
    # Of a probe that began while it was suspect.
    (State.OPEN, Event.PROBE_PASSED): _close,
    (State.OPEN, Event.PROBE_FAILED): _same,
    (State.OPEN, Event.PROBE_CROWDED_OUT): _same,
    (State.HALF_OPEN, Event.SUCCESS): _close,
    (State.HALF_OPEN, Event.FAILURE): _same,
    (State.HALF_OPEN, Event.UNREACHABLE): _same,
    (State.HALF_OPEN, Event.PROBE_PASSED): _close,
    (State.HALF_OPEN, Event.PROBE_FAILED): _open_longer,
    (State.HALF_OPEN, Event.PROBE_CROWDED_OUT): _open_again,
}
