"""Rule B's plan: what Wilson's bound asks of n, both looks, and the exact curve."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.verdict import Verdict
from gates.stats.binomial import wilson_lower, wilson_upper
from gates.stats.plans import RatePlan, dropped, needed

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


@given(st.integers(1, 300), st.sampled_from((0.5, 0.6, 0.8, 0.9, 0.95)), st.sampled_from((0.95, 0.97)))
def test_needed_is_the_first_that_passes(n: int, least: float, confidence: float) -> None:
    k = needed(n, least, confidence)
    if k == inf:
        assert wilson_lower(n, n, confidence) < least
    else:
        assert wilson_lower(int(k), n, confidence) >= least > wilson_lower(int(k) - 1, n, confidence)


@given(st.integers(1, 300), st.sampled_from((0.5, 0.6, 0.8, 0.9, 0.95)))
def test_dropped_is_the_last_that_fails(n: int, least: float) -> None:
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
    assert RatePlan(150, 0.60, 150).judge(good, more) is verdict
