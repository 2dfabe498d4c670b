"""Answers that are said, in every form; and denied, doubted, longer and taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.numbers import numbers

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
