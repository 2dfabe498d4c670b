"""Tool calls: read without mercy, held against their schema, and against what was expected."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.errors import SuiteError
from gates.detect.toolcall import accepts, find_call_faults, mismatch, read_arguments
from gates.reply.reply import ReplyCall


def made(name: str, arguments: str) -> ReplyCall:
    return ReplyCall(0, "call_1", name, arguments)


def tool(name: str, properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required), **more}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TIMER = tool(
    "set_timer", {"minutes": {"type": "integer", "minimum": 1}, "label": {"type": "string"}}, "minutes"
)
PLAY = tool("play", {"artists": {"type": "array", "items": {"type": "string"}}}, additionalProperties=False)
TOOLS = [TIMER, PLAY, {"type": "function", "function": {"name": "get_date"}}]


def faults(*calls: ReplyCall) -> list[str]:
    return [finding.kind for finding in find_call_faults(calls, TOOLS, "tool_calls")]


# --------------------------------------------------------------------------------------- arguments

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
JSON_OBJECTS = st.dictionaries(st.text(), JSON_VALUES, max_size=4)


@given(JSON_OBJECTS, st.booleans())
def test_every_json_object_is_read_back(value: dict[str, Any], ascii_only: bool) -> None:
    assert read_arguments(json.dumps(value, ensure_ascii=ascii_only)) == value


# ------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    "name, arguments, kind",
    [
        ("get_date", "[" * 100_000, "invalid_json"),
        ("get_date", '{"a": "\\ud83d"}', "invalid_json"),
        ("set_timer", "{}", "missing_required"),
        ("set_timer", '{"minutes": "10"}', "type_error:simple"),
        ("set_timer", '{"minutes": true}', "type_error:simple"),
        ("set_timer", '{"minutes": 0}', "value_error"),
        ("set_timer", '{"minutes": 1, "loud": true}', "unexpected_param"),
        ("play", '{"artists": [1]}', "type_error:nested"),
        ("play", '{"who": "Raghu"}', "unexpected_param"),
        ("open_door", "{}", "unknown_tool"),
    ],
)
def test_a_fault_has_the_class_that_the_leaderboard_gives_it(name: str, arguments: str, kind: str) -> None:
    assert faults(made(name, arguments)) == [kind]


def test_a_schema_that_points_elsewhere_is_the_suites_fault_and_never_fetched() -> None:
    away = tool("away", {"x": {"$ref": "https://example.invalid/schema.json"}})
    with pytest.raises(SuiteError, match=r"away: its parameters refer to https://example.invalid"):
        find_call_faults([made("away", '{"x": 1}')], [away])


ACCEPTED: list[tuple[list[Any], Any, bool]] = [
    (["Hassan", "Hasan"], " hasan, ", True),
    (["Hassan"], "Hassan city", False),
    (["ಹಾಸನ"], "ಹಸನ", False),
    ([5], 5.0, True),
    ([5], "5", False),
    ([1], True, False),
    ([True], 1, False),
    ([{"has": ["priya", "trip|journey"]}], "the journeys of Priya", True),
    ([{"has": ["priya", "trip"]}], "the journey of Priya", False),
    ([{"has": ["rip"]}], "Priya's trip", False),
    ([{"has": ["priya"]}], 5, False),
    ([{"one_of": [2, "two"]}], "two", True),
    ([{"one_of": [2, "two"]}], 3, False),
    ([[{"has": ["milk"]}, "eggs"]], ["full milk", "Eggs"], True),
    ([["milk", "eggs"]], ["eggs", "milk"], False),
    ([["milk"]], "milk", False),
    ([{"name": "milk", "count": {"one_of": [1, ""]}}], {"name": "Milk"}, True),
    ([{"name": "milk", "count": 2}], {"name": "milk"}, False),
    ([{"name": "milk"}], {"name": "milk", "count": 2}, False),
    ([{"name": "milk"}], "milk", False),
]


@pytest.mark.parametrize("accepted, value, fits", ACCEPTED)
def test_a_value_is_accepted_or_not(accepted: list[Any], value: Any, fits: bool) -> None:
    assert accepts(accepted, value) is fits


@given(JSON_VALUES)
def test_every_plain_value_accepts_itself(value: Any) -> None:
    assert accepts([value], json.loads(json.dumps(value)))


TIMER = {"name": "set_timer", "arguments": {"minutes": [5], "label": ["tea", ""]}}
LIGHT = {"name": "set_light", "arguments": {"room": ["hall"], "on": [True]}}
MEMO = {"name": "search_memory", "arguments": {"query": [{"has": ["trip"]}]}}
MEMO_OF_PRIYA = {"name": "search_memory", "arguments": {"query": [{"has": ["trip", "priya"]}]}}
RIGHT = ("set_timer", {"minutes": 5})
HALL = ("set_light", {"room": "hall", "on": True})

MADE: list[tuple[list[Any], list[Any], tuple[str, str] | None]] = [
    ([TIMER], [("set_timer", {"minutes": 5, "label": "Tea"})], None),
    ([TIMER, LIGHT], [HALL, RIGHT], None),
    ([MEMO, MEMO_OF_PRIYA], [(n, {"query": q}) for n, q in [("search_memory", "Priya trip"), ("search_memory", "trip")]], None),
    ([], [RIGHT], ("wrong_count", "1 calls (set_timer), expected 0")),
    ([TIMER], [], ("wrong_count", "0 calls , expected 1")),
    ([TIMER], [("set_alarm", {"minutes": 5})], ("wrong_func_name", "set_alarm, expected set_timer")),
    ([TIMER], [("set_timer", {})], ("missing_required", "set_timer has no minutes")),
    ([TIMER], [("set_timer", {"minutes": "5"})], ("value_error", "set_timer.minutes is '5'")),
    ([TIMER], [("set_timer", {"minutes": 5, "sound": "bell"})], ("unexpected_param", "set_timer has sound")),
    ([TIMER, LIGHT], [RIGHT, ("set_light", {"room": "hall", "on": False})], ("value_error", "set_light.on is False")),
    ([TIMER, LIGHT], [RIGHT, RIGHT], ("wrong_func_name", "set_timer, expected set_light")),
    ([MEMO, MEMO], [("search_memory", {"query": "trip"}), ("search_memory", {"query": "x"})],
     ("wrong_count", "one call stands for two of the expected")),
    # To try every order of 24 calls would not end.
    ([TIMER] * 24, [RIGHT] * 23 + [("set_timer", {"minutes": 6})], ("wrong_count", "one call stands for two of the expected")),
]  # fmt: skip


@pytest.mark.parametrize("expected, made, why", MADE)
def test_calls_are_right_or_it_is_told_why_not(
    expected: list[Any], made: list[Any], why: tuple[str, str] | None
) -> None:
    assert mismatch(expected, made) == why
