"""The plans of rules A, B and D: their tables, their exact curves, and their bounds; scipy is the oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gates.contracts.verdict import Verdict
from gates.stats.binomial import pmf
from gates.stats.plans import ZeroPlan, lower_rank, rate_plan, upper_rank

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "good, more, verdict",
    [
        (100, None, PASS),
        (99, None, OPEN),
        (81, None, OPEN),
        (80, None, FAIL),
        (99, 95, PASS),
        (99, 94, FAIL),  # closed: open after the extension is no pass
        (100, 0, PASS),  # what stage one decided, stands
        (80, 150, FAIL),
    ],
)
def test_the_plan_is_this_table(good: int, more: int | None, verdict: Verdict) -> None:
    assert rate_plan(150, 0.60, 150).judge((good,), None if more is None else (more,)) is verdict


PLAN = ZeroPlan(165, 115, 25)


@pytest.mark.parametrize(
    "bad, named, more, verdict",
    [
        (0, 0, None, PASS),
        (1, 0, None, OPEN),
        (1, 1, None, FAIL),
        (2, 0, None, FAIL),
        (1, 0, 0, PASS),
        (1, 0, 1, FAIL),
        (0, 0, 0, PASS),
        (0, 0, 1, PASS),  # asked for another gate's sake: no worse than one in the first stage
        (0, 0, 2, FAIL),
    ],
)
def test_the_plan_of_rule_a_is_this_table(bad: int, named: int, more: int | None, verdict: Verdict) -> None:
    assert PLAN.judge((bad, named), None if more is None else (more,)) is verdict


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("plan", [ZeroPlan(20, 10, 5), ZeroPlan(20, 10), ZeroPlan(20), ZeroPlan(8, 30, 8)])
def test_the_curve_is_the_sum_over_every_outcome(plan: ZeroPlan, rate: float) -> None:
    others, total = plan.first - plan.named, 0.0
    for named in range(plan.named + 1):
        for other in range(others + 1):
            chance = pmf(named, plan.named, rate) * pmf(other, others, rate)
            verdict = plan.judge((named + other, named))
            if verdict is OPEN:
                total += sum(
                    chance * pmf(late, plan.second, rate)
                    for late in range(plan.second + 1)
                    if plan.judge((named + other, named), (late,)) is PASS
                )
            elif verdict is PASS:
                total += chance

    assert plan.chance(rate) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("rate", [0.005, 0.012, 0.0179, 0.0181, 0.0194, 0.0196, 0.03])
def test_the_bound_of_a_pass_misses_in_5_of_100_runs_at_most(rate: float) -> None:
    clean = (1.0 - rate) ** PLAN.first
    second = PLAN.chance(rate) - clean
    missed = clean * (PLAN.upper(0) < rate) + second * (PLAN.upper(1, 0) < rate)

    assert missed <= 0.05


@given(st.integers(5, 300), st.sampled_from((0.25, 0.5, 0.9)), st.sampled_from((0.9, 0.95)))
def test_the_bounds_are_scipys(n: int, q: float, confidence: float) -> None:
    values = list(range(1, n + 1))
    high = stats.quantile_test(values, p=q, alternative="less").confidence_interval(confidence).high
    low = stats.quantile_test(values, p=q, alternative="greater").confidence_interval(confidence).low

    assert upper_rank(n, q, confidence) in (high, None)
    assert lower_rank(n, q, confidence) in (low, None)
