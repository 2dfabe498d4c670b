"""The value scanner finds where JSON ends, on any cut, as the standard parser does."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.stream.json_value import NotJSON, ValueScanner

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values: Any = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def end_of(text: str, size: int) -> int:
    """Where the value ends; -1: it does not."""
    scanner = ValueScanner()
    for at in range(0, len(text), size):
        end = scanner.feed(text[at : at + size])
        if scanner.done:
            return at + end
    return -1


@given(
    st.dictionaries(st.text(), values, max_size=4),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.text(max_size=5),
)
def test_a_value_ends_at_its_last_bracket_on_any_cut(
    value: dict[str, Any], indent: int | None, ascii_only: bool, behind: str
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert {end_of(text + behind, size) for size in (1, 2, 3, 999)} == {len(text)}
    assert end_of(text[:-1], 1) == -1


@given(st.text('{}[]",:\\u0e1tfn. -+ab\n', max_size=14))
def test_a_fault_shows_at_the_same_character_on_any_cut(text: str) -> None:
    faults = set()
    for size in (1, 2, 5, 99):
        scanner, at = ValueScanner(), 0
        try:
            while at < len(text) and not scanner.done:
                scanner.feed(text[at : at + size])
                at += size
            faults.add(-1)
        except NotJSON as error:
            faults.add(at + error.at)
    assert len(faults) == 1


@given(values)
def test_the_missing_brackets_complete_a_value_that_was_cut(value: Any) -> None:
    text = json.dumps({"a": value}).removesuffix("}")
    scanner = ValueScanner()
    scanner.feed(text)
    missing = scanner.missing()
    assert missing is not None and json.loads(text + missing) == {"a": value}
