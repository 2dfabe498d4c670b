"""Anytime-valid decisions on a mean: by scipy's integral, and simulated over conversations (exactly: test_bake)."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from gates.contracts.verdict import Verdict
from gates.stats.binomial import clopper_pearson_lower
from gates.stats.sequential import judge_mean, log_wealth, mean_bounds
from tests.gates.stats.sequence_table import SCENARIOS, Scenario, simulate

RUNS = 60


@pytest.mark.parametrize("good, bad, bound", [(12, 3, 0.6), (30, 0, 0.9), (5, 95, 0.02)])
def test_the_wealth_is_the_mixture_of_likelihood_ratios_above_the_bound(
    good: int, bad: int, bound: float
) -> None:
    def ratio(stake: float) -> float:  # a stake is a bet on the rate bound + stake * (1 - bound)
        won = (1.0 + stake * (1.0 / bound - 1.0)) ** good * (1.0 - stake) ** bad
        return float(won * stats.arcsine.pdf(stake))

    expected, _ = integrate.quad(ratio, 0.0, 1.0, limit=400)
    assert exp(log_wealth({1.0: good, 0.0: bad}, bound)) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    "scenario",
    [one for one in SCENARIOS if one.mean <= one.least and not one.by_turn],
    ids=lambda scenario: scenario.name,
)
def test_a_sequential_rule_is_wrong_in_one_run_of_twenty_at_most(scenario: Scenario) -> None:
    found = simulate(scenario, RUNS)  # seeded; the page has 2,000 runs
    for share in (found.verdicts[Verdict.PASS] / RUNS, found.wrong):
        assert clopper_pearson_lower(round(share * RUNS), RUNS, 0.999) <= 0.05
    if scenario.mean < scenario.least / 1.5:  # clearly broken
        assert found.verdicts[Verdict.FAIL] == RUNS and found.prompts[0] <= 40


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=80), st.floats(0.05, 0.95))
def test_a_mean_is_decided_where_its_bounds_exclude_the_limit(values: list[float], least: float) -> None:
    units = [(value, value) for value in values]
    verdict, n = judge_mean(units, least)
    low, high = mean_bounds(units[:n])

    assert (verdict is Verdict.PASS) == (low >= least) and (verdict is Verdict.FAIL) == (high <= least)
    assert n == len(units) or verdict is not Verdict.INCONCLUSIVE
