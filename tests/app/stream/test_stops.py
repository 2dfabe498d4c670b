"""Stop sequences that the gateway finds itself: the first one ends the reply, on every split, and is told."""

import random

import pytest

from app.stream.stops import LONGEST, MOST, StopMatcher, can_be_found
from gates.reply.events import CallStart, Done, Event, Finish, Text, Thought, Usage
from tests.scale import scaled


def heard(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize(
    "text, stops, before, found",
    [
        ("one two three", ("two",), "one ", "two"),
        ("one two three", ("three", "two"), "one ", "two"),
        ("one two three", ("tw", "two"), "one ", "tw"),  # the one that is whole first
        ("abc", ("b", "ab"), "", "ab"),  # both at once: the longer
        ("aab", ("ab",), "a", "ab"),
        ("abab", ("abc",), "abab", None),
        ("one", ("one",), "", "one"),
        ("", ("one",), "", None),
        ("ಕನ್ನಡ.", ("ಡ",), "ಕನ್ನ", "ಡ"),
    ],
)
def test_the_first_ends_what_is_heard(
    text: str, stops: tuple[str, ...], before: str, found: str | None
) -> None:
    matcher = StopMatcher(stops)
    events = matcher.feed([Text(0, text), Finish(0, "stop"), Done()])
    assert (heard(events), matcher.found) == (before, found)
    finishes = [event for event in events if isinstance(event, Finish)]
    assert finishes == [Finish(0, "stop", found)]
    assert (Done() in events) is (found is None)  # the pipeline's, once it has added the usage
    assert matcher.feed([Text(0, "more"), Done()]) == ([] if found else [Text(0, "more"), Done()])


def test_any_split_says_the_same() -> None:
    chance = random.Random(1)
    for _ in range(scaled(500, 20_000)):
        text = "".join(chance.choices("ab.", k=chance.randrange(12)))
        stops = tuple({"".join(chance.choices("ab.", k=chance.randrange(1, 4))) for _ in range(3)})
        places = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in stops if stop in text]
        _, at, found = min(places, default=(0, len(text), None))
        matcher, said, rest = StopMatcher(stops), "", text
        while rest:
            size = chance.randrange(1, 4)
            said += heard(matcher.feed([Text(0, rest[:size])]))
            rest = rest[size:]
        said += heard(matcher.feed([Finish(0, "stop")]))
        assert (said, matcher.found) == (text[:at], found), (text, stops)


def test_only_what_may_be_a_beginning_is_held_and_in_order() -> None:
    matcher = StopMatcher(("END",))
    assert matcher.feed([Text(0, "the EN")]) == [Text(0, "the ")]
    assert matcher.feed([Thought(0, "END"), Usage({})]) == [Thought(0, "END"), Usage({})]
    call = CallStart(0, 0, "f")
    assert matcher.feed([call]) == [Text(0, "EN"), call]


def test_sequences_that_would_cost_too_much_are_left_to_the_engine() -> None:
    assert can_be_found(["a" * LONGEST] * MOST)
    for stops in ([], [""], ["a" * (LONGEST + 1)], ["a"] * (MOST + 1)):
        assert not can_be_found(stops)
