"""The incremental JSON scanner agrees with the standard parser, and is sure of nothing too early."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stream.jsonscan import JSONScanner, NotJSON

values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def scan(text: str) -> JSONScanner:
    scanner = JSONScanner()
    for character in text:
        scanner.feed(character)
    return scanner


@given(st.dictionaries(st.text(), values, max_size=4), st.sampled_from([None, 1]), st.booleans())
def test_valid_json_is_complete_at_its_last_character_and_its_members_are_found(
    value: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert not scan(text[:-1]).done
    scanner = scan(text)
    assert scanner.done and scanner.certain == len(text)
    members = {k: json.loads(scanner.text(s.start, s.end)) for k, s in scanner.members.items()}
    assert members == value


@given(st.text('{}[]",:\\u0e1tfn. -+ab\n', max_size=14))
def test_nothing_is_accepted_that_the_standard_parser_refuses(text: str) -> None:
    try:
        done = scan("{" + text).done
    except NotJSON:
        return
    if done:
        json.loads("{" + text)


BAD = ['{"a" 1', "{1", '{"a":1,}', '{"a":tru,', '{"a":01,', '{"a":1.,', "{'", '{"a":"\n', '{"a":"\\x', '{"a":"\\u00g', "[1}", '{"a":1}x', "{,", "[,", '{"a":-,']  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_a_fault_is_found_at_its_character(text: str) -> None:
    scan(text[:-1])
    with pytest.raises(NotJSON):
        scan(text)


CERTAIN = {'{"a": 5': 6, '{"a": 50306': 6, '{"a": 5,': 8, '{"a": tru': 6, '{"a": "x': 8, '{"a": "x\\': 8, '{"a": "x\\u12': 8, '{"a": "x\\u1234': 14, '{"a"': 4}  # fmt: skip


@pytest.mark.parametrize("text, offset", CERTAIN.items())
def test_only_what_cannot_change_any_more_is_certain(text: str, offset: int) -> None:
    assert scan(text).certain == offset


@given(
    values.map(json.dumps), st.text(" \t\r\n", min_size=1), st.sampled_from(["", "x", "{", '"', "1", "\xa0"])
)
def test_only_white_space_may_follow_a_value_on_any_cut(value: str, space: str, behind: str) -> None:
    text = value + space + behind
    for size in (1, 2, 3, len(text)):
        scanner, is_json = JSONScanner(), True
        try:
            for at in range(0, len(text), size):
                piece = text[at : at + size]
                scanner.feed(piece, scanner.feed(piece))
        except NotJSON:
            is_json = False
        assert scanner.done and is_json == (behind == "")
