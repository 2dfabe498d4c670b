"""Rule C's plan: what it accepts, its exact curve, and what no number of pairs can show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.verdict import Verdict
from gates.stats.binomial import pmf
from gates.stats.compare import ComparePlan, fails, passes, tango_lower, tango_upper

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


@given(st.integers(1, 300), st.integers(0, 60), st.integers(0, 60), st.sampled_from((0.05, 0.10)))
def test_passing_and_failing_are_what_the_bounds_say(n: int, b: int, c: int, margin: float) -> None:
    b = min(b, n)
    c = min(c, n - b)

    assert passes(b, c, n, margin) == (tango_upper(b, c, n) <= margin)
    assert fails(b, c, n, margin) == (tango_lower(b, c, n) > margin)


@pytest.mark.parametrize(
    "b, c, more_b, more_c, verdict",
    [
        (3, 0, None, None, PASS),
        (4, 0, None, None, OPEN),
        (11, 0, None, None, OPEN),
        (12, 0, None, None, FAIL),
        (4, 0, 4, 0, PASS),
        (4, 0, 5, 0, FAIL),  # closed: open after the extension is no pass
        (3, 0, 60, 0, PASS),  # what stage one decided, stands
        (12, 0, 0, 100, FAIL),
    ],
)
def test_the_plan_is_this_table(
    b: int, c: int, more_b: int | None, more_c: int | None, verdict: Verdict
) -> None:
    assert ComparePlan(150, 0.05, 150).judge(b, c, more_b, more_c) is verdict


@pytest.mark.parametrize("loss, churn", [(0.0, 0.0), (0.0, 0.05), (0.1, 0.02), (0.3, 0.1)])
@pytest.mark.parametrize("plan", [ComparePlan(30, 0.10), ComparePlan(30, 0.10, 20)])
def test_the_curve_is_the_sum_over_every_outcome(plan: ComparePlan, loss: float, churn: float) -> None:

    def trinomial(n: int) -> list[tuple[int, int, float]]:
        return [
            (b, c, pmf(c, n, churn) * pmf(b, n - c, (loss + churn) / (1.0 - churn)))
            for c in range(n + 1)
            for b in range(n - c + 1)
        ]

    total = 0.0
    for b, c, chance in trinomial(plan.n):
        verdict = plan.judge(b, c)
        if verdict is PASS:
            total += chance
        elif verdict is OPEN and chance > 1e-9:
            total += chance * sum(
                late
                for more_b, more_c, late in trinomial(plan.more)
                if plan.judge(b, c, more_b, more_c) is PASS
            )

    assert plan.chance(loss, churn) == pytest.approx(total, abs=1e-6)


@pytest.mark.slow  # thousands of simulated gates: 2 s
def test_two_looks_at_95_percent_are_more_than_5_percent_wrong_and_at_97_not() -> None:
    churns = (0.0, 0.02, 0.05, 0.1)
    loose = max(ComparePlan(150, 0.05, 150).chance(0.05, churn) for churn in churns)
    strict = max(ComparePlan(150, 0.05, 150, 0.97).chance(0.05, churn) for churn in churns)

    assert loose == pytest.approx(0.08, abs=0.005)
    assert strict <= 0.0515
