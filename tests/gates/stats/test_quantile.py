"""Rule D's order statistics: ranks, both looks, the exact curve; scipy's quantile test as the oracle."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gates.contracts.verdict import Verdict
from gates.stats.quantile import QuantilePlan, lower_rank, smallest_n, upper_rank

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


@pytest.mark.parametrize("n, above, below", [(50, 32, 19), (100, 59, 42), (200, 113, 88)])
def test_the_ranks_that_bound_the_median(n: int, above: int, below: int) -> None:
    """As in Hahn & Meeker's tables; computed here."""
    assert (upper_rank(n), lower_rank(n)) == (above, below)


@given(st.integers(5, 300), st.sampled_from((0.25, 0.5, 0.9)), st.sampled_from((0.9, 0.95)))
def test_the_bounds_are_scipys(n: int, q: float, confidence: float) -> None:
    """Of the values 1 to n, whose ranks are themselves."""
    values = list(range(1, n + 1))
    high = stats.quantile_test(values, p=q, alternative="less").confidence_interval(confidence).high
    low = stats.quantile_test(values, p=q, alternative="greater").confidence_interval(confidence).low

    assert upper_rank(n, q, confidence) in (high, None)
    assert lower_rank(n, q, confidence) in (low, None)


@given(st.integers(1, 200), st.sampled_from((0.1, 0.5, 0.9)))
def test_the_lower_bound_is_the_upper_one_seen_from_the_other_end(n: int, q: float) -> None:
    """Turning the values round turns the ranks round."""
    above, below = upper_rank(n, q), lower_rank(n, 1.0 - q)

    assert (above is None) == (below is None)
    assert above is None or below is None or above + below == n + 1


def test_how_many_values_bound_a_quantile_at_all() -> None:
    """The largest of four does not bound the median; a 95th quantile takes 59."""
    assert (smallest_n(0.5), smallest_n(0.95)) == (5, 59)


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
    """Of 100 requests, and 100 more: 59 and 113 within the limit pass, 41 fail."""
    assert QuantilePlan(100, 100).judge(within, more) is verdict


@given(st.lists(st.floats(1.0, 1000.0), min_size=100, max_size=100), st.floats(1.0, 1000.0))
def test_counting_within_the_limit_is_looking_at_the_order_statistic(
    values: list[float], limit: float
) -> None:
    """The 59th smallest keeps the limit exactly if 59 values do; the 42nd breaks it if 41 or fewer do."""
    ordered, within = sorted(values), sum(value <= limit for value in values)
    verdict = QuantilePlan(100, 100).judge(within)

    assert (verdict is PASS) == (ordered[59 - 1] <= limit)
    assert (verdict is FAIL) == (ordered[42 - 1] > limit)


def test_too_few_values_cannot_pass() -> None:
    """Four values, all within: the median is not bounded by them."""
    assert QuantilePlan(4).judge(4) is FAIL
    assert QuantilePlan(4).chance(0.99) == 0.0


@pytest.mark.parametrize("within", [0.5, 0.6])
def test_the_curve_is_what_a_simulation_shows(within: float) -> None:
    """2,000 engines, judged by the plan itself."""
    plan, random, runs = QuantilePlan(100, 100, confidence=0.97), Random(4), 2000
    passed = 0
    for _ in range(runs):
        first, more = (sum(random.random() < within for _ in range(100)) for _ in range(2))
        verdict = plan.judge(first)
        passed += (plan.judge(first, more) if verdict is OPEN else verdict) is PASS

    assert passed / runs == pytest.approx(plan.chance(within), abs=4 * (0.25 / runs) ** 0.5)
