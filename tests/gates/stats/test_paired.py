"""Tango's score bounds and McNemar's mid-p, against published values and a likelihood found by search."""

from __future__ import annotations

from math import comb, log, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from gates.stats.binomial import z_of
from gates.stats.paired import mid_p, score, tango, tango_lower, tango_upper


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, int, int]:
    """b, c and n."""
    n = draw(st.integers(1, 400))
    b = draw(st.integers(0, n))
    return b, draw(st.integers(0, n - b)), n


# (b, c, n, confidence, low, high):
# airway hyper-responsiveness (Bentur 2009) and complete response (Cavo 2012), as in Fagerland,
# Lydersen & Laake, Statistical Analysis of Contingency Tables (2017), chapter 8, and its R package
# contingencytables; soft contact lenses, Tango (1998); R's PropCIs::scoreci.mp(25, 28, 618, 0.90).
PUBLISHED = [
    (1, 7, 21, 0.95, -0.517, -0.026, 5.1e-4),
    (6, 16, 161, 0.95, -0.1240, -0.0054, 5.1e-5),
    (0, 1, 44, 0.90, -0.096, 0.037, 5.1e-4),
    (28, 25, 618, 0.90, -0.0148, 0.0247, 5.1e-5),
]


@pytest.mark.parametrize("b, c, n, confidence, low, high, digits", PUBLISHED)
def test_tangos_interval_is_the_published_one(
    b: int, c: int, n: int, confidence: float, low: float, high: float, digits: float
) -> None:
    """To the digits that are printed."""
    assert tango(b, c, n, confidence) == pytest.approx((low, high), abs=digits)


def test_with_nothing_discordant_it_has_its_closed_form() -> None:
    """z² / (n + z²): never a width of zero."""
    for n in (1, 10, 50, 150, 1000):
        square = z_of(0.95) ** 2
        assert tango_upper(0, 0, n) == pytest.approx(square / (n + square), abs=1e-12)
        assert tango_lower(0, 0, n) == pytest.approx(-square / (n + square), abs=1e-12)


@settings(max_examples=60)
@given(tables(), st.floats(0.01, 0.6))
def test_the_score_rests_on_the_most_likely_share_of_wins(table: tuple[int, int, int], loss: float) -> None:
    """Against a numerical search of the likelihood, which knows no closed form."""
    b, c, n = table

    def unlikely(q: float) -> float:
        parts = ((b, q + loss), (c, q), (n - b - c, 1.0 - 2.0 * q - loss))
        return -sum(count * log(max(p, 1e-300)) for count, p in parts if count)

    found = optimize.minimize_scalar(unlikely, bounds=(0.0, (1.0 - loss) / 2.0), method="bounded",
                                     options={"xatol": 1e-12})  # fmt: skip
    edges = min((0.0, (1.0 - loss) / 2.0, float(found.x)), key=unlikely)
    variance = n * (2.0 * edges + loss * (1.0 - loss))

    assert score(b, c, n, loss) == pytest.approx((b - c - n * loss) / sqrt(variance), rel=1e-3, abs=1e-3)


@given(tables(), st.sampled_from((0.9, 0.95, 0.97)))
def test_at_a_bound_the_score_is_the_quantile(table: tuple[int, int, int], confidence: float) -> None:
    """The bound is where the test stops rejecting."""
    b, c, n = table
    high = tango_upper(b, c, n, confidence)

    assert (b - c) / n <= high <= 1.0
    assert high == 1.0 or score(b, c, n, high) == pytest.approx(-z_of(confidence), abs=1e-6)


@given(tables())
def test_arms_changed_over_mirror_the_interval(table: tuple[int, int, int]) -> None:
    """A loss of the one is a win of the other."""
    b, c, n = table
    low, high = tango(b, c, n)

    assert tango(c, b, n) == pytest.approx((-high, -low), abs=1e-12)


@given(tables())
def test_one_loss_more_moves_the_bound_up_and_one_win_down(table: tuple[int, int, int]) -> None:
    """In place of a pair that agreed."""
    b, c, n = table
    if b + c < n:
        assert tango_upper(b + 1, c, n) >= tango_upper(b, c, n)
        assert tango_upper(b, c + 1, n) <= tango_upper(b, c, n)


@pytest.mark.parametrize("b, c, n", [(-1, 0, 5), (0, -1, 5), (3, 3, 5), (0, 0, 0)])
def test_what_are_no_pairs_is_refused(b: int, c: int, n: int) -> None:
    """Negative, more than all, or of nothing."""
    with pytest.raises(ValueError, match="no discordant pairs"):
        tango_upper(b, c, n)


def test_mid_p_is_the_published_one() -> None:
    """Fagerland, Lydersen & Laake (2013): 0.0391 for 1 and 7; their package: 0.034690 for 6 and 16."""
    assert 2 * min(mid_p(1, 7), mid_p(7, 1)) == pytest.approx(0.0391, abs=5.1e-5)
    assert 2 * min(mid_p(6, 16), mid_p(16, 6)) == pytest.approx(0.034690, abs=5.1e-7)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mid_p_counts_half_of_what_was_seen(b: int, c: int) -> None:
    """The chance of more than b, and half of that of b, of a fair coin."""
    n = b + c
    more = sum(comb(n, k) for k in range(b + 1, n + 1)) / 2**n

    assert mid_p(b, c) == pytest.approx((more + comb(n, b) / 2**n / 2) if n else 1.0, abs=1e-12)


def test_not_significant_is_not_the_same() -> None:
    """Four lost and none won is no news to McNemar's exact test at any n, and no pass here."""
    assert 2 * mid_p(4, 0) + 2 * 0.5 * 0.5**4 == pytest.approx(0.125)
    assert 0.5**4 == 0.0625
    assert tango_upper(4, 0, 50) > 0.05
