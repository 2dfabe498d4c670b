"""Rule D, absolute: a quantile of times against a limit, by order statistics, without a distribution.

Of n sorted values the r-th smallest bounds the q-quantile from above with confidence P(B < r), the s-th from below with P(B >= s), B
binomial (n, q). Conover, Practical Nonparametric Statistics (1999), 3.2; Hahn & Meeker, Statistical Intervals (1991), 5.2.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from gates.stats.binomial import TwoLooks, cdf


@lru_cache(maxsize=1 << 10)
def upper_rank(n: int, q: float = 0.5, confidence: float = 0.95) -> int | None:
    """The rank (from 1) of the value that bounds the q-quantile from above; None if n is too small."""
    return next((r for r in range(1, n + 1) if cdf(r - 1, n, q) >= confidence), None)


@lru_cache(maxsize=1 << 10)
def lower_rank(n: int, q: float = 0.5, confidence: float = 0.95) -> int | None:
    """The rank (from 1) of the value that bounds the q-quantile from below; None if n is too small."""
    return next((s for s in range(n, 0, -1) if cdf(s - 1, n, q) <= 1.0 - confidence), None)


@dataclass(frozen=True, slots=True)
class QuantilePlan(TwoLooks):
    """`n` values, or `n + more` after an undecided first look; the q-quantile must be within a limit (negate for a lower one)."""

    n: int
    more: int = 0
    q: float = 0.5
    confidence: float = 0.95

    def _marks(self, n: int) -> tuple[float, float]:
        up, down = upper_rank(n, self.q, self.confidence), lower_rank(n, self.q, self.confidence)
        # The upper bound is within the limit if `up` values are; the lower bound is beyond it if fewer
        # than `down` are.
        return (inf if up is None else up, -1 if down is None else down - 1)
