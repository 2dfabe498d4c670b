"""The confidence sequence: true at all times together, by exact enumeration and by scipy's beta."""

from __future__ import annotations

from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from gates.stats.binomial import clopper_pearson, pmf
from gates.stats.sequential import confidence_sequence, log_wealth


@pytest.mark.parametrize("bad, n, rate", [(0, 30, 0.02), (3, 100, 0.01), (10, 40, 0.5)])
@pytest.mark.parametrize("prior", [(0.5, 0.5), (1.0, 1.0), (1.0, 20.0)])
def test_the_wealth_is_the_mixture_of_likelihood_ratios(
    bad: int, n: int, rate: float, prior: tuple[float, float]
) -> None:
    """Integrated numerically over the prior."""

    def ratio(p: float) -> float:
        return float(pmf(bad, n, p) / pmf(bad, n, rate) * stats.beta.pdf(p, *prior))

    expected, _ = integrate.quad(ratio, 0.0, 1.0, limit=400)

    assert exp(log_wealth(bad, n, rate, prior)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_the_wealth_is_a_fair_game(rate: float) -> None:
    """Its expectation under the rate it bets against is 1, at every n."""
    for n in (1, 10, 100):
        fair = sum(pmf(bad, n, rate) * exp(log_wealth(bad, n, rate)) for bad in range(n + 1))
        assert fair == pytest.approx(1.0)


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_it_ever_misses_in_5_percent_of_lives_at_most(rate: float) -> None:
    """Every path of 1,500 replies, exactly: the chance that any of the 1,500 looks misses the rate."""
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


@pytest.mark.slow  # thousands of simulated gates: 2 s
def test_an_interval_of_fixed_size_would_miss_far_more_often() -> None:
    """Why the live monitor has no Clopper-Pearson: read six times, it misses in more than 1 of 10 lives."""
    rate, alive, missed = 0.1, {0: 1.0}, 0.0
    looks = (50, 100, 200, 400, 800, 1500)
    for n in range(1, 1501):
        after: dict[int, float] = {}
        for bad, chance in alive.items():
            after[bad] = after.get(bad, 0.0) + chance * (1.0 - rate)
            after[bad + 1] = after.get(bad + 1, 0.0) + chance * rate
        alive = {bad: chance for bad, chance in after.items() if chance > 1e-12}
        if n in looks:
            bounds = {bad: clopper_pearson(bad, n) for bad in alive}
            out = [bad for bad, (low, high) in bounds.items() if not low <= rate <= high]
            missed += sum(alive.pop(bad) for bad in out)

    assert missed > 0.1


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_bounds_are_where_the_wealth_reaches_twenty(share: tuple[int, int]) -> None:
    """And the share that was seen is always between them."""
    bad, n = share
    low, high = confidence_sequence(bad, n)

    assert 0.0 <= low <= bad / n <= high <= 1.0
    for bound in (low, high):
        if 0.0 < bound < 1.0:
            assert exp(log_wealth(bad, n, bound)) == pytest.approx(20.0, rel=1e-6)


def test_before_the_first_reply_nothing_is_known() -> None:
    """And a count that is no share is refused."""
    assert confidence_sequence(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="is no share"):
        confidence_sequence(2, 1)


def test_what_cannot_have_happened_makes_the_bettor_rich() -> None:
    """A failure at a rate of 0, a success at a rate of 1."""
    assert log_wealth(1, 10, 0.0) == inf == log_wealth(9, 10, 1.0)


def test_it_is_wider_than_an_interval_of_fixed_size() -> None:
    """The price of looking all the time."""
    for bad, n in ((0, 100), (5, 500), (50, 1000)):
        assert confidence_sequence(bad, n)[1] > clopper_pearson(bad, n, 0.90)[1]


def test_a_live_model_that_leaks_is_found() -> None:
    """A lower bound above 1 % rolls back: 8 of 150 do, 4 of 400 do not."""
    assert confidence_sequence(8, 150)[0] > 0.01
    assert confidence_sequence(4, 400)[0] < 0.01
