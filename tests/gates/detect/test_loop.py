"""Replies that go in circles, and people who only say a thing twice."""

from hypothesis import given
from hypothesis import strategies as st

from gates.detect.loop import find_loops

WORDS = st.lists(st.text(alphabet="abcdefghij", min_size=1, max_size=9), min_size=1, max_size=12, unique=True)


@given(WORDS)
def test_words_that_differ_never_loop(words: list[str]) -> None:
    assert [f for f in find_loops(" ".join(words)) if f.kind not in ("char_run", "unit")] == []


@given(WORDS, st.integers(3, 6), WORDS)
def test_a_phrase_that_is_said_often_enough_is_found_wherever_it_stands(
    phrase: list[str], times: int, before: list[str]
) -> None:
    text = (
        " ".join(w.upper() + "x" for w in before)
        + ". "
        + " ".join(phrase * max(times, -(-12 // len(phrase))))
    )
    assert {"phrase", "sentence", "ngrams"} & {f.kind for f in find_loops(text)}


def test_a_loop_spans_what_repeats_and_not_what_came_before() -> None:
    text = "You asked about the trip. " + "It is on Saturday then. " * 4
    (found,) = find_loops(text)
    assert text[found.start :].startswith("It is on Saturday")
    assert found.end == len(text.rstrip())


def test_sentences_that_come_back_a_little_changed_are_found_by_their_words() -> None:
    text = " ".join(
        f"I like tea with milk in the {when} and so do you."
        for when in ("dawn", "day", "dusk", "dark", "night", "noon")
    )
    assert [finding.kind for finding in find_loops(text)] == ["ngrams"]
