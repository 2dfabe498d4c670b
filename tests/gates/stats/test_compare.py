"""Rule C: what its plan accepts, its exact curve, and its bounds against published values and a likelihood found by search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.verdict import Verdict
from gates.stats.binomial import pmf
from gates.stats.plans import fails, pass_chance, passes, tango_lower, tango_upper

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


@given(st.integers(1, 300), st.integers(0, 60), st.integers(0, 60), st.sampled_from((0.05, 0.10)))
def test_passing_and_failing_are_what_the_bounds_say(n: int, b: int, c: int, margin: float) -> None:
    b = min(b, n)
    c = min(c, n - b)

    assert passes(b, c, n, margin) == (tango_upper(b, c, n) <= margin)
    assert fails(b, c, n, margin) == (tango_lower(b, c, n) > margin)


@pytest.mark.parametrize("loss, churn", [(0.0, 0.0), (0.0, 0.05), (0.1, 0.02), (0.3, 0.1)])
def test_the_chance_to_pass_is_the_sum_over_every_outcome(loss: float, churn: float) -> None:
    total = sum(
        pmf(c, 30, churn) * pmf(b, 30 - c, (loss + churn) / (1.0 - churn))
        for c in range(31)
        for b in range(31 - c)
        if passes(b, c, 30, 0.1)
    )
    assert pass_chance(30, 0.1, loss, churn) == pytest.approx(total, abs=1e-6)


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, int, int]:
    """b, c and n."""
    n = draw(st.integers(1, 400))
    b = draw(st.integers(0, n))
    return b, draw(st.integers(0, n - b)), n


# (b, c, n, confidence, low, high):
# airway hyper-responsiveness (Bentur 2009) and complete response (Cavo 2012), as in Fagerland,
# Lydersen & Laake, Statistical Analysis of Contingency Tables (2017), chapter 8, and its R package
# contingencytables; soft contact lenses, Tango (1998); R's PropCIs::scoreci.mp(25, 28, 618, 0.90).
PUBLISHED = [
    (1, 7, 21, 0.95, -0.517, -0.026, 5.1e-4),
    (6, 16, 161, 0.95, -0.1240, -0.0054, 5.1e-5),
    (0, 1, 44, 0.90, -0.096, 0.037, 5.1e-4),
    (28, 25, 618, 0.90, -0.0148, 0.0247, 5.1e-5),
]


@pytest.mark.parametrize("b, c, n, confidence, low, high, digits", PUBLISHED)
def test_tangos_interval_is_the_published_one(
    b: int, c: int, n: int, confidence: float, low: float, high: float, digits: float
) -> None:
    each = (1.0 + confidence) / 2.0
    assert (tango_lower(b, c, n, each), tango_upper(b, c, n, each)) == pytest.approx((low, high), abs=digits)
