"""Numbers as a person reads them; a bound never promises more than it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.judge.formatting import (
    Rounding,
    format_number,
    interval_method,
    join_names,
    percent,
    plural,
    points,
)


@pytest.mark.parametrize(
    "share, way, text",
    [
        (0.018, "near", "1.8 %"),
        (0.01799, "up", "1.8 %"),
        (0.01801, "up", "1.9 %"),
        (0.0195, "up", "2.0 %"),
        (0.8199, "down", "81 %"),
        (0.976, "down", "97.6 %"),
        (0.87, "near", "87 %"),
        (0.05, "up", "5 %"),
        (0.05 + 1e-16, "up", "5 %"),
        (0.0004, "near", "0.04 %"),
        (0.001, "near", "0.1 %"),
        (0.0, "up", "0 %"),
        (1.0, "down", "100 %"),
        (-0.013, "near", "-1.3 %"),
    ],
)
def test_a_share_is_read_as_hundredths(share: float, way: Rounding, text: str) -> None:
    """With as many digits as its size can bear."""
    assert percent(share, way) == text


@given(st.floats(0.0, 1.0))
def test_a_bound_is_rounded_away_from_what_it_bounds(share: float) -> None:
    """An upper one up, a lower one down."""
    assert float(points(share, "up")) >= 100 * share - 1e-7
    assert float(points(share, "down")) <= 100 * share + 1e-7
    assert float(points(share, "up")) - float(points(share, "down")) <= 1.0


def test_a_number_is_rounded_up_down_or_to_the_nearest() -> None:
    """And what is infinite is said."""
    assert [format_number(91.26, 1, way) for way in ("near", "up", "down")] == ["91.3", "91.3", "91.2"]
    assert format_number(float("inf"), 1) == "infinity"


def test_long_lists_are_cut() -> None:
    """Three names, and how many more."""
    assert join_names(["a", "b", "c"]) == "a, b, c"
    assert join_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_one_is_singular() -> None:
    """And nought is not."""
    assert [plural(n, "prompt") for n in (0, 1, 2)] == ["0 prompts", "1 prompt", "2 prompts"]


def test_a_bound_of_two_looks_says_so() -> None:
    """Its level is stricter than what it promises."""
    assert interval_method("Wilson", 0.95, 0.95) == "Wilson"
    assert interval_method("Wilson", 0.97, 0.95) == "Wilson, 97 % each look"
