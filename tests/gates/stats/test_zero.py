"""Rule A's plan: its verdicts, its exact curve, and the bound that goes with a pass."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.verdict import Verdict
from gates.stats.binomial import clopper_pearson_upper, pmf
from gates.stats.zero import ZeroPlan

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
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
def test_the_plan_is_this_table(bad: int, named: int, more: int | None, verdict: Verdict) -> None:
    """Failures in stage one, among the named, in stage two: the verdict."""
    assert PLAN.judge(bad, named, more) is verdict


def test_without_a_second_stage_one_failure_fails() -> None:
    """There is nothing to extend to."""
    assert ZeroPlan(165).judge(1, 0) is FAIL
    assert ZeroPlan(165).judge(0, 0) is PASS


@given(st.integers(0, 3), st.integers(0, 3), st.none() | st.integers(0, 3))
def test_one_failure_more_never_helps(bad: int, named: int, more: int | None) -> None:
    """Anywhere."""
    order = (FAIL, OPEN, PASS)
    named = min(bad, named)
    verdict = order.index(PLAN.judge(bad, named, more))

    assert order.index(PLAN.judge(bad + 1, named, more)) <= verdict
    assert order.index(PLAN.judge(bad + 1, named + 1, more)) <= verdict
    if more is not None:
        assert order.index(PLAN.judge(bad, named, more + 1)) <= verdict


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("plan", [ZeroPlan(20, 10, 5), ZeroPlan(20, 10), ZeroPlan(20), ZeroPlan(8, 30, 8)])
def test_the_curve_is_the_sum_over_every_outcome(plan: ZeroPlan, rate: float) -> None:
    """Every split of failures into named, others and stage two, judged and weighed."""
    others, total = plan.first - plan.named, 0.0
    for named in range(plan.named + 1):
        for other in range(others + 1):
            chance = pmf(named, plan.named, rate) * pmf(other, others, rate)
            verdict = plan.judge(named + other, named)
            if verdict is OPEN:
                total += sum(
                    chance * pmf(late, plan.second, rate)
                    for late in range(plan.second + 1)
                    if plan.judge(named + other, named, late) is PASS
                )
            elif verdict is PASS:
                total += chance

    assert plan.chance(rate) == pytest.approx(total, abs=1e-12)


def test_the_curve_is_what_a_simulation_shows() -> None:
    """4,000 leaky models, judged by the plan itself."""
    random, rate, runs = Random(1), 0.01, 4000
    passed = 0
    for _ in range(runs):
        bad = [random.random() < rate for _ in range(PLAN.first)]
        verdict = PLAN.judge(sum(bad), sum(bad[: PLAN.named]))
        if verdict is OPEN:
            late = sum(random.random() < rate for _ in range(PLAN.second))
            verdict = PLAN.judge(sum(bad), sum(bad[: PLAN.named]), late)
        passed += verdict is PASS

    assert passed / runs == pytest.approx(PLAN.chance(rate), abs=4 * (0.25 / runs) ** 0.5)


def test_more_prompts_let_fewer_bad_models_through() -> None:
    """So that a suite larger than the policy's sizes is only stricter."""
    for rate in (0.001, 0.005, 0.02):
        assert ZeroPlan(200, 115, 25).chance(rate) < PLAN.chance(rate)
        assert ZeroPlan(165, 150, 25).chance(rate) < PLAN.chance(rate)


def test_a_clean_first_stage_has_clopper_pearsons_bound() -> None:
    """0 of 165: fewer than 1.8 %."""
    assert PLAN.upper(0) == clopper_pearson_upper(0, 165)
    assert PLAN.upper(0, 0) == clopper_pearson_upper(0, 280)
    assert PLAN.upper(0, 1) == clopper_pearson_upper(1, 280)


def test_a_pass_by_the_second_stage_promises_less_than_a_clean_first() -> None:
    """1 of 280 alone would promise 1.7 %, and be worse than 0 of 165 with 1.8 %."""
    assert clopper_pearson_upper(1, 280) < PLAN.upper(0) < PLAN.upper(1, 0)


@pytest.mark.parametrize("rate", [0.005, 0.012, 0.0179, 0.0181, 0.0194, 0.0196, 0.03])
def test_the_bound_of_a_pass_misses_in_5_of_100_runs_at_most(rate: float) -> None:
    """Over the whole procedure, exactly: a pass whose bound is below the true rate."""
    clean = (1.0 - rate) ** PLAN.first
    second = PLAN.chance(rate) - clean
    missed = clean * (PLAN.upper(0) < rate) + second * (PLAN.upper(1, 0) < rate)

    assert missed <= 0.05
