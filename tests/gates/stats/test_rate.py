"""Rule B's plan: what Wilson's bound asks of n, both looks, and the exact curve."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.verdict import Verdict
from gates.stats.binomial import wilson_lower, wilson_upper
from gates.stats.rate import RatePlan, dropped, needed

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


@given(st.integers(1, 300), st.sampled_from((0.5, 0.6, 0.8, 0.9, 0.95)), st.sampled_from((0.95, 0.97)))
def test_needed_is_the_first_that_passes(n: int, least: float, confidence: float) -> None:
    """One success fewer does not pass."""
    k = needed(n, least, confidence)
    if k == inf:
        assert wilson_lower(n, n, confidence) < least
    else:
        assert wilson_lower(int(k), n, confidence) >= least > wilson_lower(int(k) - 1, n, confidence)


@given(st.integers(1, 300), st.sampled_from((0.5, 0.6, 0.8, 0.9, 0.95)))
def test_dropped_is_the_last_that_fails(n: int, least: float) -> None:
    """One success more does not fail."""
    k = dropped(n, least)

    assert k < 0 or wilson_upper(k, n) < least
    assert wilson_upper(k + 1, n) >= least


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
    """150 prompts, 150 more, 60 % wanted."""
    assert RatePlan(150, 0.60, 150).judge(good, more) is verdict


def test_without_an_extension_an_open_look_fails() -> None:
    """What was not shown is not there."""
    assert RatePlan(150, 0.60).judge(99) is FAIL


@given(st.integers(0, 149), st.none() | st.integers(0, 149))
def test_one_success_more_never_hurts(good: int, more: int | None) -> None:
    """In either stage."""
    plan, order = RatePlan(150, 0.60, 150), (FAIL, OPEN, PASS)
    verdict = order.index(plan.judge(good, more))

    assert order.index(plan.judge(good + 1, more)) >= verdict
    if more is not None:
        assert order.index(plan.judge(good, more + 1)) >= verdict


@pytest.mark.parametrize("rate", [0.6, 0.7])
def test_the_curve_is_what_a_simulation_shows(rate: float) -> None:
    """2,000 models, judged by the plan itself."""
    plan, random, runs = RatePlan(100, 0.60, 50, 0.97), Random(2), 2000
    passed = 0
    for _ in range(runs):
        good, more = (sum(random.random() < rate for _ in range(n)) for n in (plan.n, plan.more))
        verdict = plan.judge(good)
        passed += (plan.judge(good, more) if verdict is OPEN else verdict) is PASS

    assert passed / runs == pytest.approx(plan.chance(rate), abs=4 * (0.25 / runs) ** 0.5)


def test_two_looks_at_95_percent_are_more_than_5_percent_wrong() -> None:
    """A model on the floor gets a second chance; the curve says what that costs."""
    once, twice = RatePlan(150, 0.60).chance(0.60), RatePlan(150, 0.60, 150).chance(0.60)

    assert once == pytest.approx(0.055, abs=0.002)
    assert twice == pytest.approx(0.088, abs=0.002)
