"""A circuit breaker for one engine, as a table: whether it gets requests, and when it is probed.

Most failures may be caused by the request itself: an engine answers 500 to a history that its chat
template cannot render, and times out on a prompt that is too long. So a `FAILURE` does not open the breaker.
It makes it `SUSPECT`: requests still pass, and a probe is due at once. A probe that streams clears the
engine, a probe that fails opens the breaker. Only what no request can cause counts directly: refused
connections (`UNREACHABLE`), and probes that fail on an idle engine.

    CLOSED   takes requests
    SUSPECT  takes requests; a probe decides
    OPEN     takes none; after each pause a probe decides

An illegal pair raises and changes nothing. Times are monotonic seconds.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

FAILURES = 3
"""Consecutive failures, of kinds that no request can cause, that open the breaker."""
FIRST_PAUSE = 0.5
"""Initial open time in seconds; doubled with each failed probe, up to LONGEST_PAUSE."""
LONGEST_PAUSE = 4.0
PROBE_SECONDS_APART = 1.0
"""Seconds between probes of a suspected engine; each costs a completion of a few tokens."""


class BreakerState(StrEnum):
    """See the table in the module's docstring."""

    CLOSED = "closed"
    SUSPECT = "suspect"
    OPEN = "open"


class BreakerEvent(StrEnum):
    """The outcome of a request, the start of a probe, or the outcome of a probe."""

    SUCCESS = "success"
    """A request got its first token."""
    FAILURE = "failure"
    """A request failed, perhaps because of the request itself."""
    UNREACHABLE = "unreachable"
    """The engine accepted no connection."""
    PROBE = "probe"
    PROBE_PASSED = "probe_passed"
    PROBE_FAILED = "probe_failed"
    PROBE_CROWDED_OUT = "probe_crowded_out"
    """The probe got no token in time, but a live reply did: the engine works and has no free slot."""


class IllegalBreakerEvent(Exception):
    """A bug: this event cannot happen in this state; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """Its state, consecutive failures, the present pause, and when the next probe may begin."""

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    pause: float = FIRST_PAUSE
    until: float = 0.0

    @property
    def passes(self) -> bool:
        """Whether requests may be sent."""
        return self.state is not BreakerState.OPEN

    def may_probe(self, now: float) -> bool:
        """Whether a probe is due and may begin now."""
        return self.state is not BreakerState.CLOSED and now >= self.until


def step(breaker: Breaker, event: BreakerEvent, now: float) -> Breaker:
    """The breaker after an event. `now` is in monotonic seconds. Raises IllegalBreakerEvent."""
    try:
        after = _TABLE[breaker.state, event]
    except KeyError:
        raise IllegalBreakerEvent(f"{event} while {breaker.state}") from None
    return after(breaker, now)


def _close(breaker: Breaker, now: float) -> Breaker:
    return Breaker()


def _clear(breaker: Breaker, now: float) -> Breaker:
    # `until` is kept: the next probe may not come sooner.
    return Breaker(until=breaker.until) if breaker.until > now else Breaker()


def _suspect(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, state=BreakerState.SUSPECT)


def _count(breaker: Breaker, now: float) -> Breaker:
    failures = breaker.failures + 1
    if failures >= FAILURES:
        return _open(replace(breaker, failures=failures), now)
    return replace(breaker, state=BreakerState.SUSPECT, failures=failures)


def _probing(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, until=now + PROBE_SECONDS_APART)


def _open(breaker: Breaker, now: float) -> Breaker:
    return Breaker(BreakerState.OPEN, max(breaker.failures, 1), FIRST_PAUSE, now + FIRST_PAUSE)


def _open_longer(breaker: Breaker, now: float) -> Breaker:
    pause = min(breaker.pause * 2, LONGEST_PAUSE)
    return Breaker(BreakerState.OPEN, breaker.failures + 1, pause, now + pause)


def _wait(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, until=now + breaker.pause)


def _same(breaker: Breaker, now: float) -> Breaker:
    return breaker


_TABLE = {
    (BreakerState.CLOSED, BreakerEvent.SUCCESS): _clear,
    (BreakerState.CLOSED, BreakerEvent.FAILURE): _suspect,
    (BreakerState.CLOSED, BreakerEvent.UNREACHABLE): _count,
    # Of an idle engine, or of one that streamed a token to a caller while the probe ran.
    (BreakerState.CLOSED, BreakerEvent.PROBE_PASSED): _clear,
    (BreakerState.CLOSED, BreakerEvent.PROBE_FAILED): _count,
    (BreakerState.CLOSED, BreakerEvent.PROBE_CROWDED_OUT): _same,
    (BreakerState.SUSPECT, BreakerEvent.SUCCESS): _clear,
    (BreakerState.SUSPECT, BreakerEvent.FAILURE): _same,
    (BreakerState.SUSPECT, BreakerEvent.UNREACHABLE): _count,
    (BreakerState.SUSPECT, BreakerEvent.PROBE): _probing,
    (BreakerState.SUSPECT, BreakerEvent.PROBE_PASSED): _clear,
    (BreakerState.SUSPECT, BreakerEvent.PROBE_FAILED): _open,
    (BreakerState.SUSPECT, BreakerEvent.PROBE_CROWDED_OUT): _clear,
    # Requests that were in progress when it opened still end. A token of one of them counts like a
    # probe's; a failure adds nothing.
    (BreakerState.OPEN, BreakerEvent.SUCCESS): _close,
    (BreakerState.OPEN, BreakerEvent.FAILURE): _same,
    (BreakerState.OPEN, BreakerEvent.UNREACHABLE): _same,
    (BreakerState.OPEN, BreakerEvent.PROBE): _wait,
    (BreakerState.OPEN, BreakerEvent.PROBE_PASSED): _close,
    (BreakerState.OPEN, BreakerEvent.PROBE_FAILED): _open_longer,
    (BreakerState.OPEN, BreakerEvent.PROBE_CROWDED_OUT): _wait,
}
