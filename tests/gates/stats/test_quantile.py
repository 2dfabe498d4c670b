"""Rule D's order statistics: ranks, both looks, the exact curve; scipy's quantile test as the oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gates.contracts.verdict import Verdict
from gates.stats.plans import QuantilePlan, lower_rank, upper_rank

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


@given(st.integers(5, 300), st.sampled_from((0.25, 0.5, 0.9)), st.sampled_from((0.9, 0.95)))
def test_the_bounds_are_scipys(n: int, q: float, confidence: float) -> None:
    values = list(range(1, n + 1))
    high = stats.quantile_test(values, p=q, alternative="less").confidence_interval(confidence).high
    low = stats.quantile_test(values, p=q, alternative="greater").confidence_interval(confidence).low

    assert upper_rank(n, q, confidence) in (high, None)
    assert lower_rank(n, q, confidence) in (low, None)


@pytest.mark.parametrize(
    "within, more, verdict",
    [
        (59, None, PASS),
        (58, None, OPEN),
        (42, None, OPEN),
        (41, None, FAIL),
        (58, 55, PASS),
        (58, 54, FAIL),
        (59, 0, PASS),
        (41, 100, FAIL),
    ],
)
def test_the_plan_is_this_table(within: int, more: int | None, verdict: Verdict) -> None:
    assert QuantilePlan(100, 100).judge(within, more) is verdict


@given(st.lists(st.floats(1.0, 1000.0), min_size=100, max_size=100), st.floats(1.0, 1000.0))
def test_counting_within_the_limit_is_looking_at_the_order_statistic(
    values: list[float], limit: float
) -> None:
    ordered, within = sorted(values), sum(value <= limit for value in values)
    verdict = QuantilePlan(100, 100).judge(within)

    assert (verdict is PASS) == (ordered[59 - 1] <= limit)
    assert (verdict is FAIL) == (ordered[42 - 1] > limit)
