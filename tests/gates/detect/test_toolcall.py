"""Tool calls: read without mercy, held against their schema, and against what was expected."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.errors import SuiteError
from gates.detect.arguments import InvalidArguments, read_arguments
from gates.detect.toolcall import CallFault, find_call_faults, find_mismatch
from gates.reply.calls import ReplyCall


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


def faults(*calls: ReplyCall, reason: str | None = "tool_calls") -> list[str]:
    return [finding.kind for finding in find_call_faults(calls, TOOLS, reason)]


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


@pytest.mark.parametrize(
    "raw",
    [
        "", "  ", "minutes: 10", "{'minutes': 10}", '{"minutes": 10,}', '{"minutes": 10} x', '{"minutes": 010}', '{"a": "\\ud83d"}',
        "[" * 100_000, '{"a": ' + "9" * 5000 + "}", '{"a": {"b": 1, "b": 2}}', '{"a": NaN}', '{"a": 1e999}', "[1]", '"{}"', "null",
    ],
)  # fmt: skip
def test_what_a_strict_parser_refuses_is_refused_here(raw: str) -> None:
    assert isinstance(read_arguments(raw), InvalidArguments)
    assert CallFault.INVALID_JSON in faults(made("get_date", raw))


# ------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    "name, arguments, kind",
    [
        ("set_timer", "{}", CallFault.MISSING),
        ("set_timer", '{"minutes": "10"}', CallFault.TYPE),
        ("set_timer", '{"minutes": true}', CallFault.TYPE),
        ("set_timer", '{"minutes": 0}', CallFault.VALUE),
        ("set_timer", '{"minutes": 1, "loud": true}', CallFault.UNEXPECTED),
        ("play", '{"artists": [1]}', CallFault.TYPE_NESTED),
        ("play", '{"who": "Raghu"}', CallFault.UNEXPECTED),
        ("open_door", "{}", CallFault.UNKNOWN_TOOL),
    ],
)
def test_a_fault_has_the_class_that_the_leaderboard_gives_it(
    name: str, arguments: str, kind: CallFault
) -> None:
    assert faults(made(name, arguments)) == [kind]


@pytest.mark.parametrize(
    "calls, reason, wrong",
    [(1, "stop", 1), (1, "length", 1), (1, None, 0), (0, "tool_calls", 1), (0, "stop", 0)],
)
def test_a_finish_reason_tells_of_calls_when_there_are_some(
    calls: int, reason: str | None, wrong: int
) -> None:
    calls_made = [made("get_date", "{}")] * calls
    assert faults(*calls_made, reason=reason) == [CallFault.FINISH_REASON] * wrong


def test_a_schema_that_points_elsewhere_is_the_suites_fault_and_never_fetched() -> None:
    away = tool("away", {"x": {"$ref": "https://example.invalid/schema.json"}})
    with pytest.raises(SuiteError, match=r"away: its parameters refer to https://example.invalid"):
        find_call_faults([made("away", '{"x": 1}')], [away])


# --------------------------------------------------------------------------------------- expectation


TIMER_OF_TEN = {"name": "set_timer", "arguments": {"minutes": [10]}}


@pytest.mark.parametrize(
    "expected, calls, kinds",
    [
        ([TIMER_OF_TEN], [made("set_timer", '{"minutes": 10}')], []),
        ([TIMER_OF_TEN], [made("set_timer", '{"minutes": 11}')], [CallFault.VALUE]),
        ([TIMER_OF_TEN], [made("set_timer", "{")], [CallFault.NO_MATCH]),
        ([TIMER_OF_TEN], [], [CallFault.NOT_CALLED]),
        ([], [made("get_date", "{}")], [CallFault.NEEDLESS]),
    ],
)
def test_a_wrong_call_has_its_class(
    expected: list[dict[str, Any]], calls: list[ReplyCall], kinds: list[CallFault]
) -> None:
    assert [finding.kind for finding in find_mismatch(calls, expected)] == kinds
