"""How a reply sounds: empty, too long, hard to say, in the wrong script, declining."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.answers import find_wrong_answer
from gates.detect.detection import LONGEST_EXCERPT
from gates.detect.everyday import find_refusal
from gates.detect.leak import find_leaks
from gates.detect.live import find_violations
from gates.detect.script import find_wrong_script
from gates.detect.speakable import find_too_long, find_unspeakable, spoken_seconds

# ------------------------------------------------------------------------------------------- length


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("", 0),
        ("one two three four five", 2.0),
        ("well-known", 0.4),
        ("1,23,456", 3.6),
        ("3.14", 1.6),
        ("7:30", 0.8),
        ("98450123456", 4.4),
        ("50%", 0.8),
        ("ಕನ್ನಡ", 0.6),
        ("ಬೆಂಗಳೂರು", 0.8),
    ],
)
def test_seconds_follow_the_words_and_the_aksharas(text: str, seconds: float) -> None:
    assert spoken_seconds(text) == pytest.approx(seconds)


def test_what_is_too_long_is_shown_from_where_the_time_is_up() -> None:
    (found,) = find_too_long("one two three four five six", 2.0)
    assert found.start == 24
    assert find_too_long("one two three four five", 2.0) == []


@pytest.mark.parametrize(
    "form",
    [
        "It is {}.",
        "{} is the sum.",
        "Take bus {}",
        "{}, and {} more.",
        "({})",
        "{}% of it.",
        "At {}!",
        "Is it {}?",
    ],
)
def test_no_number_is_an_emoticon(form: str) -> None:
    told = (form.format(*[number] * form.count("{}")) for number in range(1000))
    assert [text for text in told if any(f.kind == "emoticon" for f in find_unspeakable(text))] == []


# ---------------------------------------------------------------------------------------------- live


def test_a_finished_reply_is_looked_at_by_all_that_need_only_a_text() -> None:
    text = "Okay, the user wants milk.\n\n- milk 😊\n<tool_call>" + "!" * 20
    assert {finding.detector for finding in find_violations(text)} == {"leak", "markdown", "raw_call", "loop"}
    assert [finding.detector for finding in find_violations("")] == ["empty"]
    assert find_violations("", calls=1) == []
    assert find_violations("The timer is set, and I'll ring in ten minutes.") == []


# --------------------------------------------------------------------------------------- any text

# What engines send: any character, half a surrogate pair, and the words that detectors look for.
ANY = st.lists(
    st.one_of(
        st.text(st.characters(), max_size=8),
        st.sampled_from(
            ["\ud83d", "the user ", "1,23,456", "₹", "Wait, ", "<think>", "ನೂರ ", "15 August ", "or 4", "**", '{"name": "', "\x00", "İ", "point ", "minus "]
        ),
    ),
    max_size=8,
).map("".join)  # fmt: skip


@given(ANY)
def test_no_text_that_an_engine_may_send_breaks_a_detector(text: str) -> None:
    answer = {"any": ["15 August 1947"], "number": 4, "tolerance": 0}
    findings = [
        *find_violations(text, names=["play", "set_timer"], tokens=["<x>"]),
        *find_leaks(text, completion_tokens=9, called="{}"),
        *find_unspeakable(text),
        *find_too_long(text, 1.0),
        *find_wrong_script(text, "Knda"),
        *find_refusal(text),
        *find_wrong_answer(text, answer),
    ]
    for finding in findings:
        assert 0 <= finding.start <= finding.end <= len(text)
        assert len(finding.excerpt) <= LONGEST_EXCERPT
