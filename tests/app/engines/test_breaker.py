"""The circuit breaker: a table, and what holds whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engines.breaker import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PROBE_SECONDS_APART,
    Breaker,
    BreakerEvent,
    BreakerState,
    step,
)

CLOSED = Breaker()
SUSPECT = Breaker(BreakerState.SUSPECT)
PROBED = Breaker(BreakerState.SUSPECT, until=10.5)
OPEN = Breaker(BreakerState.OPEN, 2.0, 10.0)
JUST_OPENED = Breaker(BreakerState.OPEN, FIRST_PAUSE, 10 + FIRST_PAUSE)

TABLE = {
    "a token": (CLOSED, BreakerEvent.SUCCESS, CLOSED),
    "a failure opens nothing: it asks for a probe": (CLOSED, BreakerEvent.FAILURE, SUSPECT),
    "a good probe of an idle engine": (CLOSED, BreakerEvent.PROBE_PASSED, CLOSED),
    "a bad probe of an idle engine asks for another": (CLOSED, BreakerEvent.PROBE_FAILED, SUSPECT),
    "an engine with no room is well": (CLOSED, BreakerEvent.PROBE_CROWDED_OUT, CLOSED),
    "a token clears it": (SUSPECT, BreakerEvent.SUCCESS, CLOSED),
    "a token does not bring the next probe nearer": (PROBED, BreakerEvent.SUCCESS, Breaker(until=10.5)),
    "a second failure says nothing new": (SUSPECT, BreakerEvent.FAILURE, SUSPECT),
    "a probe of an idle engine begins": (CLOSED, BreakerEvent.PROBE, CLOSED),
    "a probe begins": (SUSPECT, BreakerEvent.PROBE, Breaker(BreakerState.SUSPECT, until=10 + PROBE_SECONDS_APART)),
    "the probe passes": (SUSPECT, BreakerEvent.PROBE_PASSED, CLOSED),
    "the probe fails": (SUSPECT, BreakerEvent.PROBE_FAILED, JUST_OPENED),
    "the probe finds no room": (SUSPECT, BreakerEvent.PROBE_CROWDED_OUT, CLOSED),
    "a late failure": (OPEN, BreakerEvent.FAILURE, OPEN),
    "a late token closes it": (OPEN, BreakerEvent.SUCCESS, CLOSED),
    "a probe of an open one begins": (OPEN, BreakerEvent.PROBE, Breaker(BreakerState.OPEN, 2.0, 12.0)),
    "a good probe closes it": (OPEN, BreakerEvent.PROBE_PASSED, CLOSED),
    "a bad probe opens it for twice as long": (OPEN, BreakerEvent.PROBE_FAILED, Breaker(BreakerState.OPEN, 4.0, 14.0)),
    "without room it waits as long again": (OPEN, BreakerEvent.PROBE_CROWDED_OUT, Breaker(BreakerState.OPEN, 2.0, 12.0)),
}  # fmt: skip


@pytest.mark.parametrize("before, event, after", TABLE.values(), ids=TABLE.keys())
def test_each_pair_has_its_outcome(before: Breaker, event: BreakerEvent, after: Breaker) -> None:
    assert step(before, event, 10.0) == after


def test_every_pair_is_in_the_table() -> None:
    pairs = {(before.state, event) for before, event, _ in TABLE.values()}
    assert pairs == {(state, event) for state in BreakerState for event in BreakerEvent}


HISTORY = st.lists(st.tuples(st.sampled_from(BreakerEvent), st.floats(0, 5)), max_size=40)


@given(HISTORY)
def test_probes_are_apart_and_pauses_within_their_limit(events: list[tuple[BreakerEvent, float]]) -> None:
    breaker, now, last = Breaker(), 0.0, float("-inf")
    for event, wait in events:
        now += wait
        if event is BreakerEvent.PROBE:
            if not breaker.may_probe(now):
                continue
            if breaker.state is BreakerState.SUSPECT:
                assert now >= last + PROBE_SECONDS_APART
                last = now
        breaker = step(breaker, event, now)
        assert FIRST_PAUSE <= breaker.pause <= LONGEST_PAUSE
        assert breaker.until <= now + LONGEST_PAUSE


@given(
    st.lists(
        st.sampled_from(
            [BreakerEvent.SUCCESS, BreakerEvent.FAILURE, BreakerEvent.PROBE, BreakerEvent.PROBE_PASSED]
        ),
        max_size=60,
    )
)
def test_no_number_of_failed_requests_opens_an_engine_that_passes_its_probes(
    events: list[BreakerEvent],
) -> None:
    breaker = Breaker()
    for now, event in enumerate(events):
        if event is not BreakerEvent.PROBE or breaker.may_probe(now):
            breaker = step(breaker, event, now)
        assert breaker.passes
