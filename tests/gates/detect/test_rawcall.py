"""Calls that came as text, whole and in pieces, and tools that are only talked about."""

from gates.detect.rawcall import find_raw_calls

TOOLS = ("search_memory", "set_timer", "play")


def test_a_tool_is_known_by_name_only_when_its_names_are_given() -> None:
    assert [f.excerpt for f in find_raw_calls("Let search_memory do it.", TOOLS)] == ["search_memory"]
    assert find_raw_calls("Let search_memory do it.") == []
    assert [f.kind for f in find_raw_calls("I need the search_memory tool.")] == ["named"]


def test_a_name_inside_its_own_call_is_not_told_twice() -> None:
    assert len(find_raw_calls('{"name": "search_memory", "arguments": {}}', TOOLS)) == 1
