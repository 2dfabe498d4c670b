"""Numbers as a person reads them; a bound never promises more than it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.judge.formatting import (
    Rounding,
    percent,
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
    assert percent(share, way) == text


@given(st.floats(0.0, 1.0))
def test_a_bound_is_rounded_away_from_what_it_bounds(share: float) -> None:
    assert float(points(share, "up")) >= 100 * share - 1e-7
    assert float(points(share, "down")) <= 100 * share + 1e-7
    assert float(points(share, "up")) - float(points(share, "down")) <= 1.0
