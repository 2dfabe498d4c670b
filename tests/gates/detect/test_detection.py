"""Findings show their evidence; stretches of text know what they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.detection import SpanSet, detection, merged, normalize


def test_a_finding_is_one_line_of_evidence() -> None:
    assert (
        str(detection("markdown", "bullet_list", "Buy:\n- milk", 5, 11))
        == "markdown: bullet_list at 5: '- milk'"
    )
    assert (
        str(detection("leak", "reasoning", "hm", 0, 2, part="reasoning"))
        == "leak: reasoning at reasoning 0: 'hm'"
    )


SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda s: (s[0], s[0] + s[1])), max_size=8
)


@given(SPANS)
def test_merged_stretches_cover_the_same_and_do_not_overlap(spans: list[tuple[int, int]]) -> None:
    out = merged(spans)
    assert {i for a, b in out for i in range(a, b)} == {i for a, b in spans for i in range(a, b)}
    assert all(left[1] <= right[0] for left, right in zip(out, out[1:], strict=False))


@given(SPANS, st.integers(0, 45), st.integers(1, 6))
def test_a_cover_answers_as_a_walk_over_all_stretches_would(
    spans: list[tuple[int, int]], start: int, length: int
) -> None:
    cover, end = SpanSet(spans), start + length
    assert cover.holds(start, end) == any(a <= start and end <= b for a, b in merged(spans))
    assert cover.touches(start, end) == any(a < end and start < b for a, b in spans)


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
