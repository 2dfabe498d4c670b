"""Numbers as a person reads them; a bound never promises more than it is."""

from hypothesis import given
from hypothesis import strategies as st

from gates.judge.formatting import (
    points,
)


@given(st.floats(0.0, 1.0))
def test_a_bound_is_rounded_away_from_what_it_bounds(share: float) -> None:
    assert float(points(share, "up")) >= 100 * share - 1e-7
    assert float(points(share, "down")) <= 100 * share + 1e-7
    assert float(points(share, "up")) - float(points(share, "down")) <= 1.0
