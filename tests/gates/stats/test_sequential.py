"""The confidence sequence: true at all times together, by exact enumeration and by scipy's beta."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from gates.stats.binomial import pmf
from gates.stats.sequential import confidence_sequence, log_wealth


@pytest.mark.parametrize("bad, n, rate", [(0, 30, 0.02), (3, 100, 0.01), (10, 40, 0.5)])
@pytest.mark.parametrize("prior", [(0.5, 0.5), (1.0, 1.0), (1.0, 20.0)])
def test_the_wealth_is_the_mixture_of_likelihood_ratios(
    bad: int, n: int, rate: float, prior: tuple[float, float]
) -> None:

    def ratio(p: float) -> float:
        return float(pmf(bad, n, p) / pmf(bad, n, rate) * stats.beta.pdf(p, *prior))

    expected, _ = integrate.quad(ratio, 0.0, 1.0, limit=400)

    assert exp(log_wealth(bad, n, rate, prior)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_it_ever_misses_in_5_percent_of_lives_at_most(rate: float) -> None:
    alive, missed = {0: 1.0}, 0.0
    for n in range(1, 1501):
        after: dict[int, float] = {}
        for bad, chance in alive.items():
            after[bad] = after.get(bad, 0.0) + chance * (1.0 - rate)
            after[bad + 1] = after.get(bad + 1, 0.0) + chance * rate
        alive = {}
        for bad, chance in after.items():
            if exp(log_wealth(bad, n, rate)) >= 20.0:
                missed += chance
            elif chance > 1e-12:
                alive[bad] = chance

    assert 0.001 < missed <= 0.05


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_bounds_are_where_the_wealth_reaches_twenty(share: tuple[int, int]) -> None:
    bad, n = share
    low, high = confidence_sequence(bad, n)

    assert 0.0 <= low <= bad / n <= high <= 1.0
    for bound in (low, high):
        if 0.0 < bound < 1.0:
            assert exp(log_wealth(bad, n, bound)) == pytest.approx(20.0, rel=1e-6)
