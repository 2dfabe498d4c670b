"""What each detector finds and where, and what no text may do to it; how a reply sounds."""

import emoji
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.answers import find_wrong_answer
from gates.detect.detection import LONGEST_EXCERPT
from gates.detect.leak import find_leaks
from gates.detect.live import find_refusal, find_violations
from gates.detect.markdown import find_markdown
from gates.detect.numbers import numbers
from gates.detect.script import find_wrong_script
from gates.detect.speakable import find_too_long, find_unspeakable

# ------------------------------------------------------------------------------------------- length


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
        *find_leaks(text, reasoning=text[::-1]),
        *find_unspeakable(text),
        *find_too_long(text, 1.0),
        *find_wrong_script(text, "Knda"),
        *find_refusal(text),
        *find_wrong_answer(text, answer),
    ]
    for finding in findings:
        assert 0 <= finding.start <= finding.end <= len(text)
        assert len(finding.excerpt) <= LONGEST_EXCERPT


# What the parser says and speech does not mind, what it says wrongly, and what it misses: the cases
# that were measured before this detector was written, and their like. "" is clean.


def test_every_emoji_there_is_is_found() -> None:
    assert [one for one in emoji.EMOJI_DATA if one not in "©®™ℹ" and not find_markdown(one)] == []


# ------------------------------------------------------------------------------------------ numbers

ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def spelled(n: int) -> str:
    """A number in Indian English."""
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f" {ONES[n % 10]}" if n % 10 else "")
    for scale, name in ((10**7, "crore"), (10**5, "lakh"), (10**3, "thousand"), (100, "hundred")):
        if n >= scale:
            rest = f" {'and ' if scale == 100 else ''}{spelled(n % scale)}" if n % scale else ""
            return f"{spelled(n // scale)} {name}{rest}"
    raise AssertionError(n)


@given(st.integers(0, 10**9 - 1))
def test_every_number_is_read_from_words_and_from_groups(n: int) -> None:
    for said in (spelled(n), spelled(n).replace(" and ", " "), f"{n:,}", str(n)):
        assert [number.value for number in numbers(f"It is {said}.")] == [n], said


@pytest.mark.parametrize(
    "text, values",
    [
        ("nineteen forty seven", [1947]),
        ("twenty twenty six", [2026]),
        ("two and a half", [2.5]),
        ("2.5 lakh", [250_000]),
        ("three point one four", [3.14]),
        ("minus five", [-5]),
        ("ten minus five", [10, 5]),
        ("-5 or 5-3", [-5, 5, 3]),
        ("COVID-19 and B12", []),
        ("42nd and 5k", [42, 5000]),
        ("one, two, three", [1, 2, 3]),
        ("three and four", [3, 4]),
        ("೪೨ ಮತ್ತು ನೂರ ಎರಡು", [42, 102]),
        ("ಎರಡು ಸಾವಿರದ ಐನೂರು", [2500]),
        ("a dozen", [12]),
        ("and hundreds more", []),
    ],
)
def test_numbers_are_read_as_people_say_them(text: str, values: list[float]) -> None:
    assert [number.value for number in numbers(text)] == values


WORDS = [
    ("Hello,  World!", "hello world"),
    ("What's up?", "whats up"),
    ("what’s up", "whats up"),
    ("₹1,23,456", "1 23 456"),
    ("ಹೇಗಿದ್ದೀರಾ?", "ಹೇಗಿದ್ದೀರಾ"),
    ("ＦＵＬＬ Straße", "full strasse"),
    ("...", ""),
]
