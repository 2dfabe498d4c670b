"""Binomial chances and both intervals, against scipy."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gates.stats.binomial import (
    cdf,
    clopper_pearson_lower,
    clopper_pearson_upper,
    pmf,
    tail,
    wilson_lower,
    wilson_upper,
)

shares = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
confidences = st.sampled_from((0.8, 0.9, 0.95, 0.97, 0.99))


# Nearer to 1 the last bit of x alone moves the value by more than the tolerance.
@given(shares, st.floats(1e-9, 1.0) | st.just(0.0))  # scipy overflows at rates near the smallest float
def test_chances_are_scipys(share: tuple[int, int], p: float) -> None:
    k, n = share

    assert isclose(pmf(k, n, p), stats.binom.pmf(k, n, p), rel_tol=1e-9, abs_tol=1e-12)
    assert isclose(cdf(k, n, p), stats.binom.cdf(k, n, p), rel_tol=1e-9, abs_tol=1e-12)
    assert isclose(tail(k, n, p), stats.binom.sf(k - 1, n, p), rel_tol=1e-9, abs_tol=1e-12)


def test_a_bound_of_many_costs_a_term_for_each_step() -> None:
    """A bake takes bounds of up to 2,048 replies in the event loop."""
    pmf.cache_clear()
    clopper_pearson_upper(1024, 2048, 0.99)
    assert pmf.cache_info().misses < 200


@given(shares, confidences)
def test_two_sided_intervals_are_scipys(share: tuple[int, int], confidence: float) -> None:
    k, n = share
    test = stats.binomtest(k, n)

    each = (1.0 + confidence) / 2.0
    assert (clopper_pearson_lower(k, n, each), clopper_pearson_upper(k, n, each)) == pytest.approx(
        test.proportion_ci(confidence, "exact"), abs=1e-9
    )
    assert (wilson_lower(k, n, each), wilson_upper(k, n, each)) == pytest.approx(
        test.proportion_ci(confidence, "wilson"), abs=1e-7
    )
