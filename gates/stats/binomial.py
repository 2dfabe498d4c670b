"""Binomial probabilities and confidence intervals for a share, by the standard library: a gateway has no scipy.

Clopper-Pearson has guaranteed coverage (rule A), Wilson covers on average and is narrower (rule B); the normal approximation has no
width at 0 of 25. Clopper & Pearson (1934), Biometrika 26:404-413. Wilson (1927), J. Am. Stat. Assoc. 22:209-212. Brown, Cai &
DasGupta (2001), Statistical Science 16:101-133.
"""

from collections.abc import Callable
from functools import lru_cache
from math import exp, lgamma, log, log1p, sqrt
from statistics import NormalDist


def z_of(confidence: float) -> float:
    """The standard normal quantile of a one-sided confidence: 0.95 gives 1.645."""
    return NormalDist().inv_cdf(confidence)


@lru_cache(maxsize=1 << 16)
def pmf(k: int, n: int, p: float) -> float:
    """The probability of exactly k of n."""
    if not 0 <= k <= n:
        return 0.0
    if p in (0.0, 1.0):
        return float(k == n * p)
    return exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p))


def cdf(k: int, n: int, p: float) -> float:
    """The probability of at most k of n: the smaller tail, or 1 without it. The work grows with the square root of n."""
    if k >= n * p:
        return 1.0 - cdf(n - k - 1, n, 1.0 - p) if k < n else 1.0
    term = total = pmf(k, n, p)  # the largest of the tail; those that no longer count are left out
    for i in range(k, 0, -1):
        term *= i * (1.0 - p) / ((n - i + 1) * p)
        total += term
        if term < 1e-18 * total:
            break
    return total


def tail(k: int, n: int, p: float) -> float:
    """The probability of at least k of n."""
    return cdf(n - k, n, 1.0 - p)


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a function that is positive at `low` and negative at `high`, by bisection."""
    while low < (middle := (low + high) / 2.0) < high:
        if function(middle) > 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


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
