"""The numbers by which the rules were chosen: each comes out of the code that applies the rules.

What the seeds' named gates say alone, what the plans let through, the k's and b's that pass, exact
sizes and powers. A number printed as a percentage is held to half of its last digit.
"""

from __future__ import annotations

import pytest

from gates.stats import compare, quantile, rate
from gates.stats.binomial import clopper_pearson_lower, clopper_pearson_upper, tail, wilson_lower
from gates.stats.paired import mid_p, tango_upper
from gates.stats.sequential import confidence_sequence
from gates.stats.zero import ZeroPlan

# ---------------------------------------------------------------------- the named floors, by themselves


@pytest.mark.parametrize(
    "bound, percent",
    [
        (clopper_pearson_upper(0, 25), 11.3),
        (clopper_pearson_lower(6, 10), 30.4),
        (wilson_lower(6, 10), 35.2),
        (clopper_pearson_lower(12, 15), 56.0),
        (wilson_lower(12, 15), 59.1),
        (clopper_pearson_lower(5, 5), 54.9),
        (clopper_pearson_lower(50, 50), 94.2),
    ],
)
def test_what_a_named_gate_shows_when_it_is_just_passed(bound: float, percent: float) -> None:
    """Leak 0/25, tools 6/10, no markdown 12/15, factual and reasoning 5/5, non-empty 50/50."""
    assert 100 * bound == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize(
    "least, of, good, percent",
    [
        (25, 25, 0.95, 27.7),
        (25, 25, 0.98, 60.3),
        (25, 25, 0.99, 77.8),
        (6, 10, 0.5, 37.7),
        (6, 10, 0.4, 16.6),
        (6, 10, 0.7, 85.0),  # a good model fails 15 %
        (12, 15, 0.7, 29.7),
        (12, 15, 0.9, 94.4),  # fails 6 %
        (5, 5, 0.8, 32.8),
        (5, 5, 0.95, 77.4),  # fails 23 %
    ],
)
def test_how_often_a_named_gate_passes(least: int, of: int, good: float, percent: float) -> None:
    """A model whose answers are good at this rate."""
    assert 100 * tail(least, of, good) == pytest.approx(percent, abs=0.05)


def test_the_named_battery_fails_every_second_good_model() -> None:
    """0.5 % leak, 80 % tools, 95 % no markdown, factual and reasoning, 99.9 % non-empty: 48 % pass."""
    alone = [(25, 25, 0.995), (6, 10, 0.8), (12, 15, 0.95), (5, 5, 0.95), (5, 5, 0.95), (50, 50, 0.999)]
    together = 1.0
    for least, of, good in alone:
        together *= tail(least, of, good)

    assert together == pytest.approx(0.48, abs=0.005)


@pytest.mark.parametrize("rate, n", [(0.05, 59), (0.02, 149), (0.01, 299)])
def test_how_many_clean_prompts_exclude_a_rate(rate: float, n: int) -> None:
    """At 95 %: the rule of three, exactly. One prompt fewer is not enough."""
    assert clopper_pearson_upper(0, n) <= rate < clopper_pearson_upper(0, n - 1)


def test_ten_pairs_without_a_difference_show_nothing() -> None:
    """A true loss of 15 % looks so in 20 % of runs; an interval without a width would pass it."""
    assert pytest.approx(0.197, abs=0.001) == 0.85**10
    assert tango_upper(0, 0, 10) > 0.15


# -------------------------------------------------------------------------------------- rule A

RATES = (0.03, 0.02, 0.01, 0.005, 0.0025, 0.001)


def test_the_two_stage_plan_without_named_cases() -> None:
    """165 and 115, one failure anywhere allowed: 0.8, 4.7, 29, 64, 87 and 97 %."""
    curve = [100 * ZeroPlan(165, 115).chance(rate) for rate in RATES]

    assert curve == pytest.approx([0.8, 4.7, 29.0, 64.1, 86.7, 97.3], abs=0.05)


def test_the_two_stage_plan_as_it_is_applied() -> None:
    """None of the 25 named may fail, which makes it a little stricter."""
    curve = [100 * ZeroPlan(165, 115, 25).chance(rate) for rate in RATES]

    assert curve == pytest.approx([0.7, 4.6, 27.5, 61.0, 83.6, 95.4], abs=0.05)


def test_the_single_plan_of_149() -> None:
    """5 % at a leak of 2 %, 69 % at 0.25 %, 86 % at 0.1 %."""
    curve = [100 * ZeroPlan(149).chance(rate) for rate in (0.02, 0.0025, 0.001)]

    assert curve == pytest.approx([4.93, 68.87, 86.15], abs=0.005)


# -------------------------------------------------------------------------------------- rule B


@pytest.mark.parametrize("n, ks", [(100, (69, 87, 95)), (150, (100, 129, 142))])
def test_how_many_must_succeed(n: int, ks: tuple[int, ...]) -> None:
    """For floors of 60, 80 and 90 %."""
    assert tuple(rate.needed(n, least) for least in (0.60, 0.80, 0.90)) == ks


# -------------------------------------------------------------------------------------- rule C


@pytest.mark.parametrize(
    "n, margin, most",
    [
        (100, 0.05, [1, 1, 2, 3]),
        (150, 0.05, [3, 3, 4, 5]),
        (200, 0.05, [4, 5, 6, 6]),
        (300, 0.05, [8, 9, 10, 10]),
        (50, 0.10, [1, 2, 2, 3]),
        (100, 0.10, [5, 5, 6, 7]),
    ],
)
def test_how_many_may_be_lost(n: int, margin: float, most: list[int]) -> None:
    """Beside 0, 1, 2 and 3 won."""
    assert [compare.largest_b(c, n, margin) for c in range(4)] == most


def test_fifty_pairs_cannot_show_five_points() -> None:
    """Not even with none lost."""
    assert not compare.passes(0, 0, 50, 0.05)
    assert compare.resolving_n(0.05) == 52


@pytest.mark.parametrize(
    "n, margin, size",
    [
        (150, 0.05, 5.5),
        (100, 0.05, 5.8), (200, 0.05, 5.8), (300, 0.05, 5.8), (50, 0.10, 5.8), (100, 0.10, 5.8),
    ],
)  # fmt: skip
def test_the_exact_size_of_one_look(n: int, margin: float, size: float) -> None:
    """The most often that a candidate on the margin passes, over every churn."""
    churns = [x / 200 for x in range(60)]

    assert 100 * max(compare.ComparePlan(n, margin).chance(margin, churn) for churn in churns) <= size


@pytest.mark.parametrize(
    "discordant, n, percent",
    [
        (0.04, 100, 65), (0.04, 150, 85), (0.04, 200, 92), (0.04, 300, 99),
        (0.08, 100, 48), (0.08, 150, 69), (0.08, 200, 77), (0.08, 300, 90),
    ],
)  # fmt: skip
def test_how_often_an_equal_model_passes(discordant: float, n: int, percent: int) -> None:
    """Exactly; the numbers it was designed by came from 800 simulations each, so three errors are left."""
    chance = compare.ComparePlan(n, 0.05).chance(0.0, discordant / 2)
    error = (chance * (1 - chance) / 800) ** 0.5

    assert chance == pytest.approx(percent / 100, abs=3 * error + 0.005)


def test_mcnemar_finds_nothing_in_four_lost_and_none_won() -> None:
    """Its exact p is 0.0625, one-sided; so it is no gate."""
    assert tail(4, 4, 0.5) == pytest.approx(0.0625)
    assert mid_p(4, 0) == pytest.approx(0.0625 / 2)


# -------------------------------------------------------------------------- latency and sequences


@pytest.mark.parametrize("n, ranks", [(50, (32, 19)), (100, (59, 42)), (200, (113, 88))])
def test_the_order_statistics_of_the_median(n: int, ranks: tuple[int, int]) -> None:
    """And a 95th quantile takes 59 values to bound at all."""
    assert (quantile.upper_rank(n), quantile.lower_rank(n)) == ranks
    assert quantile.smallest_n(0.95) == 59


def test_a_sequential_gate_would_save_nothing() -> None:
    """A confidence sequence needs two to three times the 149 clean samples of a fixed n."""
    assert confidence_sequence(0, 320)[1] <= 0.02 < confidence_sequence(0, 319)[1]
    flat = (1.0, 1.0)
    assert confidence_sequence(0, 451, prior=flat)[1] <= 0.02 < confidence_sequence(0, 450, prior=flat)[1]
