"""What an expectation accepts, and how a wrong call is told; and words as they are compared."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.expect import accepts, mismatch
from gates.detect.normalize import normalize

ACCEPTED: list[tuple[list[Any], Any, bool]] = [
    (["Hassan"], "hassan", True),
    (["Hassan"], " Hassan, ", True),
    (["Hassan"], "Hassan city", False),
    (["Hassan", "Hasan"], "Hasan", True),
    (["ಹಾಸನ"], "ಹಾಸನ", True),
    (["ಹಾಸನ"], "ಹಸನ", False),
    ([5], 5.0, True),
    ([5], "5", False),
    ([5, "5"], "5", True),
    ([1], True, False),
    ([True], True, True),
    ([True], 1, False),
    ([None], None, True),
    ([{"has": ["priya", "trip"]}], "What did Priya say about our trip?", True),
    ([{"has": ["priya", "trip"]}], "the trip of Priya", True),
    ([{"has": ["priya", "trip"]}], "the journey of Priya", False),
    ([{"has": ["priya", "trip|journey"]}], "the journeys of Priya", True),
    ([{"has": ["rip"]}], "Priya's trip", False),
    ([{"has": ["new delhi"]}], "trains to New Delhi", True),
    ([{"has": ["priya"]}], 5, False),
    ([{"one_of": [2, "two"]}], "two", True),
    ([{"one_of": [2, "two"]}], 3, False),
    ([["milk", "eggs"]], ["Milk", "eggs"], True),
    ([["milk", "eggs"]], ["eggs", "milk"], False),
    ([["milk"]], ["milk", "eggs"], False),
    ([["milk"]], "milk", False),
    ([[{"has": ["milk"]}]], ["full milk"], True),
    ([{"name": "milk", "count": 2}], {"count": 2, "name": "Milk"}, True),
    ([{"name": "milk", "count": 2}], {"name": "milk"}, False),
    ([{"name": "milk"}], {"name": "milk", "count": 2}, False),
    ([{"name": "milk", "count": {"one_of": [1, ""]}}], {"name": "milk"}, True),
    ([{"name": "milk", "count": {"one_of": [1, ""]}}], {"name": "milk", "count": 3}, False),
    ([{"name": "milk"}], "milk", False),
]


@pytest.mark.parametrize("accepted, value, fits", ACCEPTED)
def test_a_value_is_accepted_or_not(accepted: list[Any], value: Any, fits: bool) -> None:
    assert accepts(accepted, value) is fits


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(("a", "b", "unit")), inner),
)


@given(JSON)
def test_every_plain_value_accepts_itself(value: Any) -> None:
    assert accepts([value], json.loads(json.dumps(value)))


TIMER = {"name": "set_timer", "arguments": {"minutes": [5], "label": ["tea", ""]}}
LIGHT = {"name": "set_light", "arguments": {"room": ["hall"], "on": [True]}}
MEMO = {"name": "search_memory", "arguments": {"query": [{"has": ["trip"]}]}}
MEMO_OF_PRIYA = {"name": "search_memory", "arguments": {"query": [{"has": ["trip", "priya"]}]}}
RIGHT = ("set_timer", {"minutes": 5})
HALL = ("set_light", {"room": "hall", "on": True})

MADE: list[tuple[list[Any], list[Any], str | None]] = [
    ([], [], None),
    ([TIMER], [RIGHT], None),
    ([TIMER], [("set_timer", {"minutes": 5, "label": "Tea"})], None),
    ([TIMER, LIGHT], [HALL, RIGHT], None),
    ([MEMO, MEMO_OF_PRIYA], [(n, {"query": q}) for n, q in [("search_memory", "Priya trip"), ("search_memory", "trip")]], None),
    ([], [RIGHT], "wrong_count: 1 calls (set_timer), expected 0"),
    ([TIMER], [], "wrong_count: 0 calls , expected 1"),
    ([TIMER], [("set_alarm", {"minutes": 5})], "wrong_func_name: set_alarm, expected set_timer"),
    ([TIMER], [("set_timer", {})], "missing_required: set_timer has no minutes"),
    ([TIMER], [("set_timer", {"minutes": "5"})], "value_error: set_timer.minutes is '5'"),
    ([TIMER], [("set_timer", {"minutes": 5, "label": "egg"})], "value_error: set_timer.label is 'egg'"),
    ([TIMER], [("set_timer", {"minutes": 5, "sound": "bell"})], "unexpected_param: set_timer has sound"),
    ([TIMER, LIGHT], [RIGHT, ("set_light", {"room": "hall", "on": False})], "value_error: set_light.on is False"),
    ([TIMER, LIGHT], [RIGHT, RIGHT], "wrong_func_name: set_timer, expected set_light"),
    ([MEMO, MEMO], [("search_memory", {"query": "trip"}), ("search_memory", {"query": "x"})],
     "wrong_count: one call stands for two of the expected"),
]  # fmt: skip


@pytest.mark.parametrize("expected, made, why", MADE)
def test_calls_are_right_or_it_is_told_why_not(expected: list[Any], made: list[Any], why: str | None) -> None:
    assert mismatch(expected, made) == why


WORDS = [
    ("Hello,  World!", "hello world"),
    ("What's up?", "whats up"),
    ("what’s up", "whats up"),
    ("₹1,23,456", "1 23 456"),
    ("ಹೇಗಿದ್ದೀರಾ?", "ಹೇಗಿದ್ದೀರಾ"),
    ("ＦＵＬＬ Straße", "full strasse"),
    ("...", ""),
]


@pytest.mark.parametrize("text, expected", WORDS)
def test_text_is_compared_without_its_dress(text: str, expected: str) -> None:
    assert normalize(text) == expected


@given(st.text())
def test_normal_text_stays_as_it_is(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)
