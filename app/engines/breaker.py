"""A circuit breaker for one engine, as a table: whether it gets requests, and when it is probed.

Most failures may be caused by the request itself: an engine answers 500 to a history that its chat template cannot render. So a
`FAILURE` makes the breaker `SUSPECT`, and a probe is due at once: one that streams clears the engine, one that fails opens the
breaker.

    CLOSED   takes requests
    SUSPECT  takes requests; a probe decides
    OPEN     takes none; after each pause a probe decides

Times are monotonic seconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

FIRST_PAUSE = 0.5  # initial open time in seconds; doubled with each failed probe, up to LONGEST_PAUSE
LONGEST_PAUSE = 4.0
PROBE_SECONDS_APART = 1.0  # between probes of a suspected engine; each costs a completion of a few tokens


class BreakerState(StrEnum):
    """See the table in the module's docstring."""

    CLOSED = "closed"
    SUSPECT = "suspect"
    OPEN = "open"


class BreakerEvent(StrEnum):
    """The outcome of a request, the start of a probe, or the outcome of a probe."""

    SUCCESS = "success"  # a request got its first token
    FAILURE = "failure"  # a request failed, perhaps because of the request itself
    PROBE = "probe"
    PROBE_PASSED = "probe_passed"
    PROBE_FAILED = "probe_failed"
    PROBE_CROWDED_OUT = "probe_crowded_out"  # it got no token in time, but a live reply did: no slot is free


@dataclass(frozen=True, slots=True)
class Breaker:
    """Its state, the present pause, and when the next probe may begin."""

    state: BreakerState = BreakerState.CLOSED
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
    """The breaker after an event."""
    return _TABLE[event][_COLUMNS.index(breaker.state)](breaker, now)


def _same(breaker: Breaker, now: float) -> Breaker:
    return breaker


def _clear(breaker: Breaker, now: float) -> Breaker:
    """`until` is kept while it takes requests: the next probe may not come sooner."""
    return Breaker(until=breaker.until) if breaker.passes and breaker.until > now else Breaker()


def _suspect(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, state=BreakerState.SUSPECT)


def _open(breaker: Breaker, now: float) -> Breaker:
    pause = FIRST_PAUSE if breaker.passes else min(breaker.pause * 2, LONGEST_PAUSE)
    return Breaker(BreakerState.OPEN, pause, now + pause)


def _wait(breaker: Breaker, now: float) -> Breaker:
    return replace(breaker, until=now + (PROBE_SECONDS_APART if breaker.passes else breaker.pause))


_Step = Callable[[Breaker, float], Breaker]
_COLUMNS: Final = tuple(BreakerState)
_TABLE: Final[Mapping[BreakerEvent, tuple[_Step, _Step, _Step]]] = {
    # in the columns: while CLOSED, SUSPECT, OPEN
    BreakerEvent.SUCCESS: (_clear, _clear, _clear),
    BreakerEvent.FAILURE: (_suspect, _same, _same),
    BreakerEvent.PROBE: (_same, _wait, _wait),
    BreakerEvent.PROBE_PASSED: (_clear, _clear, _clear),
    BreakerEvent.PROBE_FAILED: (_suspect, _open, _open),
    BreakerEvent.PROBE_CROWDED_OUT: (_same, _clear, _wait),
}
"""While it is open, requests that were in progress still end: a token counts like a probe's, a failure adds nothing. A closed one
is probed when its engine is idle."""
