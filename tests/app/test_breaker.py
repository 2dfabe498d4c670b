"""The circuit breaker: a table, and what holds whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.breaker import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, Breaker, Event, IllegalEvent, State, step

OPEN = Breaker(State.OPEN, FAILURES, 2.0, 12.0)
HALF = Breaker(State.HALF_OPEN, FAILURES, 2.0, 12.0)

TABLE = {
    "a first failure only counts": (Breaker(), Event.FAILURE, Breaker(State.CLOSED, 1)),
    "the last one opens it": (Breaker(State.CLOSED, FAILURES - 1), Event.FAILURE, Breaker(State.OPEN, FAILURES, FIRST_PAUSE, 10 + FIRST_PAUSE)),
    "a success forgets the failures": (Breaker(State.CLOSED, 2), Event.SUCCESS, Breaker()),
    "a probe goes through when it is open": (OPEN, Event.PROBE, Breaker(State.HALF_OPEN, FAILURES, 2.0, 12.0)),
    "a late failure says nothing new": (OPEN, Event.FAILURE, OPEN),
    "a late token closes it": (OPEN, Event.SUCCESS, Breaker()),
    "a good probe closes it": (HALF, Event.SUCCESS, Breaker()),
    "a bad probe opens it for twice as long": (HALF, Event.FAILURE, Breaker(State.OPEN, FAILURES + 1, 4.0, 14.0)),
}  # fmt: skip


@pytest.mark.parametrize("before, event, after", TABLE.values(), ids=TABLE.keys())
def test_each_pair_has_its_outcome(before: Breaker, event: Event, after: Breaker) -> None:
    assert step(before, event, 10.0) == after


@pytest.mark.parametrize("breaker", [Breaker(), HALF])
def test_a_second_probe_is_a_bug_and_changes_nothing(breaker: Breaker) -> None:
    with pytest.raises(IllegalEvent):
        step(breaker, Event.PROBE, 10.0)


@given(st.lists(st.tuples(st.sampled_from(Event), st.floats(0, 5)), max_size=40))
def test_one_probe_at_a_time_and_pauses_within_their_limit(events: list[tuple[Event, float]]) -> None:
    breaker, now, probing = Breaker(), 0.0, False
    for event, wait in events:
        now += wait
        if event is Event.PROBE and not breaker.may_probe(now):
            continue
        assert not (event is Event.PROBE and probing)
        breaker = step(breaker, event, now)
        probing = breaker.state is State.HALF_OPEN
        assert FIRST_PAUSE <= breaker.pause <= LONGEST_PAUSE
        assert breaker.until <= now + LONGEST_PAUSE
