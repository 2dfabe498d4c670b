"""Binomial probabilities and confidence intervals for a share, by the standard library: a gateway has no scipy.

Clopper-Pearson has guaranteed coverage (rule A), Wilson covers on average and is narrower (rule B); the normal approximation has no
width at 0 of 25. Clopper & Pearson (1934), Biometrika 26:404-413. Wilson (1927), J. Am. Stat. Assoc. 22:209-212. Brown, Cai &
DasGupta (2001), Statistical Science 16:101-133.
"""

from collections.abc import Callable
from functools import lru_cache
from math import exp, lgamma, log, log1p, sqrt
from statistics import NormalDist
from typing import Final

_TINY: Final = 1e-300  # in place of a zero denominator (modified Lentz)
_PRECISION: Final = 1e-15
_MOST_TERMS: Final = 100_000  # the fraction needs about sqrt(max(a, b)) terms


def z_of(confidence: float) -> float:
    """The standard normal quantile of a one-sided confidence: 0.95 gives 1.645."""
    return NormalDist().inv_cdf(confidence)


# ------------------------------------------------------------------------------- beta and binomial


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for a, b > 0 (DLMF 8.17.22)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):  # where the fraction converges fast
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _not_zero(1.0 + term * d)
            c = _not_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < _PRECISION:
            break
    return value


def _not_zero(x: float) -> float:
    return x if abs(x) > _TINY else _TINY


@lru_cache(maxsize=1 << 16)
def pmf(k: int, n: int, p: float) -> float:
    """The probability of exactly k of n."""
    if not 0 <= k <= n:
        return 0.0
    if p in (0.0, 1.0):
        return float(k == n * p)
    return exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p))


def cdf(k: int, n: int, p: float) -> float:
    """The probability of at most k of n."""
    if k < 0:
        return 0.0
    return 1.0 if k >= n else beta_cdf(1.0 - p, n - k, k + 1)


def tail(k: int, n: int, p: float) -> float:
    """The probability of at least k of n."""
    if k <= 0:
        return 1.0
    return 0.0 if k > n else beta_cdf(p, k, n - k + 1)


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a function that is positive at `low` and negative at `high`, by bisection."""
    while low < (middle := (low + high) / 2.0) < high:
        if function(middle) > 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


# -------------------------------------------------------------------------------------- intervals


def clopper_pearson_lower(k: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided exact lower bound of the share, in [0, 1]: at it, k or more has probability 1 - confidence."""
    return 0.0 if k == 0 else root(lambda p: (1.0 - confidence) - tail(k, n, p), 0.0, 1.0)


def clopper_pearson_upper(k: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided exact upper bound of the share: at it, k or fewer has probability 1 - confidence."""
    return 1.0 if k == n else root(lambda p: cdf(k, n, p) - (1.0 - confidence), 0.0, 1.0)


def wilson_lower(k: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided score lower bound of the share."""
    return 0.0 if k == 0 else _wilson(k, n, -z_of(confidence))


def wilson_upper(k: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided score upper bound of the share."""
    return 1.0 if k == n else _wilson(k, n, z_of(confidence))


def _wilson(k: int, n: int, z: float) -> float:
    share, square = k / n, z * z / n
    return (share + square / 2.0 + z * sqrt((share * (1.0 - share) + square / 4.0) / n)) / (1.0 + square)
