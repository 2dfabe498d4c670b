"""Calls that came as text, whole and in pieces, and tools that are only talked about."""

from gates.detect.rawcall import find_raw_calls

TOOLS = ("search_memory", "set_timer", "play")


def test_a_tool_is_known_by_name_only_when_its_names_are_given() -> None:
    announced = "I will call search_memory for it."
    assert [f.excerpt for f in find_raw_calls(announced, TOOLS)] == ["I will call search_memory"]
    assert find_raw_calls(announced) == []
    assert [f.kind for f in find_raw_calls("I need the search_memory tool.")] == ["named"]


def test_a_name_inside_its_own_call_is_not_told_twice() -> None:
    assert len(find_raw_calls('{"name": "search_memory", "arguments": {}}', TOOLS)) == 1
