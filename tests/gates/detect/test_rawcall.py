"""Calls that came as text, whole and in pieces, and tools that are only talked about."""

import pytest

from gates.detect.rawcall import find_raw_calls

TOOLS = ("search_memory", "set_timer", "play")


@pytest.mark.parametrize(
    "text, kinds",
    [
        (
            '<tool_call>\n{"name": "set_timer", "arguments": {}}\n</tool_call>',
            "call_tag json_call call_tag",
        ),
        (
            "<function=set_timer>\n<parameter=minutes>\n10\n</parameter>\n</function>",
            "call_tag part_tag part_tag part_tag",
        ),
        ('{"name": "set_timer", "arguments": {"minutes": 10}}', "json_call"),
        ('{"arguments": {"minutes": 10}, "name": "set_timer"}', "json_call"),
        ("{'name': 'set_timer', 'parameters': {", "json_call"),
        ('{"tool_calls": []}', "json_call"),
        ("set_timer(minutes=10)", "code_call"),
        ("I would use the search_memory tool.", "named"),
        ("I used `play` for that.", "named"),
        ("the play function", "named"),
    ],
)
def test_every_shape_of_a_call_has_its_kind(text: str, kinds: str) -> None:
    assert [finding.kind for finding in find_raw_calls(text, TOOLS)] == kinds.split()


def test_a_tool_is_known_by_name_only_when_its_names_are_given() -> None:
    assert [f.excerpt for f in find_raw_calls("Let search_memory do it.", TOOLS)] == ["search_memory"]
    assert find_raw_calls("Let search_memory do it.") == []
    assert [f.kind for f in find_raw_calls("I need the search_memory tool.")] == ["named"]


@pytest.mark.parametrize(
    "text", ["Let's play chess.", "The play starts at eight.", "my_file is here", "{1, 2} [3]", "3 < 4", ""]
)
def test_prose_is_no_call(text: str) -> None:
    assert find_raw_calls(text, TOOLS) == []


def test_a_name_inside_its_own_call_is_not_told_twice() -> None:
    assert len(find_raw_calls('{"name": "search_memory", "arguments": {}}', TOOLS)) == 1
