"""Answers that are said, in every form; and denied, doubted, longer and taken back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.answers import find_wrong_answer
from gates.detect.numbers import numbers


def wrong(text: str, *any_: str, **number: float) -> str | None:
    expect: dict[str, Any] = {"any": list(any_)} if any_ else {}
    found = find_wrong_answer(text, expect | number)
    return found[0].kind if found else None


@pytest.mark.parametrize(
    "text, why",
    [
        ("Paris", None),
        ("It's Paris's river.", None),
        ("Not Lyon but Paris.", None),
        ("No, Paris.", None),
        ("Not only Paris.", None),
        ("Not Lyon. Paris.", None),
        ("PARIS!", None),
        ("Lyon", "missing"),
        ("Parisian", "missing"),
        ("not Paris", "denied"),
        ("Lyon, not Paris.", "denied"),
        ("Paris isn't it.", "denied"),
        ("I don't think it could be Paris.", "denied"),
        ("I'm not sure it's Paris.", "denied"),
        ("Lyon rather than Paris", "denied"),
        ("", "missing"),
    ],
)
def test_a_name_is_said_or_it_is_not(text: str, why: str | None) -> None:
    assert wrong(text, "Paris") == why


@pytest.mark.parametrize(
    "text, why",
    [
        ("42", None),
        ("forty-two", None),
        ("ನಲವತ್ತೆರಡು", None),
        ("It isn't 41, it's 42.", None),
        ("42, or forty two", None),
        ("142", "missing"),
        ("42.5", "missing"),
        ("-42", "missing"),
        ("not 42", "denied"),
        ("41 or 42", "hedged"),
        ("42 or maybe 41", "hedged"),
        ("42, no, wait, 41", "retracted"),
        ("four hundred and twenty", "missing"),
    ],
)
def test_a_number_is_said_or_it_is_not(text: str, why: str | None) -> None:
    assert wrong(text, number=42, tolerance=0) == why


DATES = [
    "15 August 1947", "August 15, 1947", "the 15th of August, 1947", "15 Aug 1947", "1947-08-15",
    "15 ಆಗಸ್ಟ್ 1947", "the fifteenth... 15 August nineteen forty seven",
]  # fmt: skip


@pytest.mark.parametrize("said", DATES)
def test_a_date_is_one_date_in_every_form(said: str) -> None:
    for expected in ("15 August 1947", "August 15, 1947", "15 August"):
        assert wrong(f"It was on {said}.", expected) is None
    assert wrong(f"It was on {said}.", "16 August 1947") == "missing"
    assert wrong(f"It was on {said}.", "1947") is None


@pytest.mark.parametrize(
    "said, expected",
    [
        ("₹1,23,456", "123456 rupees"),
        ("one lakh twenty three thousand four hundred and fifty six rupees", "₹1,23,456"),
        ("100°C", "one hundred degrees Celsius"),
        ("five kilometres", "5 km"),
        ("50 percent", "50%"),
        ("São Paulo", "Sao Paulo"),
        ("ಬೆಂಗಳೂರಿನಲ್ಲಿ", "ಬೆಂಗಳೂರು"),
        ("the Nile", "Nile"),
    ],
)
def test_units_money_and_accents_have_one_form(said: str, expected: str) -> None:
    assert wrong(f"It is {said}.", expected) is None


# ------------------------------------------------------------------------------------------ numbers

ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
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


def grouped(n: int) -> str:
    """A number with Indian groups."""
    head, tail = divmod(n, 1000)
    parts = [f"{tail:03d}"] if head else [str(tail)]
    while head:
        head, part = divmod(head, 100)
        parts.append(f"{part:02d}" if head else str(part))
    return ",".join(reversed(parts))


@given(st.integers(0, 10**9 - 1))
def test_every_number_is_read_from_words_and_from_both_kinds_of_groups(n: int) -> None:
    for said in (spelled(n), spelled(n).replace(" and ", " "), grouped(n), f"{n:,}", str(n)):
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
