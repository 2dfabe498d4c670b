"""Plans that are fixed before the run: rule A (no failure), rule B (a share), rule D (a quantile). Pure.

A plan has one look, or one extension after an undecided look, after which undecided fails. Sources: Jennison & Turnbull 1983,
Technometrics 25:49-58 (bounds ordered by stage); Bowyer, Aitchison & Ivanova (2025), arXiv 2503.01747 (why not the normal
approximation); Conover, Practical Nonparametric Statistics (1999), 3.2 and Hahn & Meeker, Statistical Intervals (1991), 5.2 (order
statistics).
"""

from dataclasses import dataclass
from functools import lru_cache

from gates.contracts.verdict import Verdict
from gates.stats.binomial import cdf, clopper_pearson_upper, root, wilson_lower, wilson_upper


class TwoLooks:
    """The plan of a rule: `n` are judged, and `more` after an undecided first look (0: there is none)."""

    __slots__ = ()
    n: int
    more: int

    def passes(self, good: int, n: int) -> bool:
        """Whether so many good ones pass a look at n."""
        raise NotImplementedError

    def fails(self, good: int, n: int) -> bool:
        """Whether so few good ones fail a look at n."""
        raise NotImplementedError

    def judge(self, good: int, more_good: int | None = None) -> Verdict:
        """The verdict on `good` of n, and of the extension; INCONCLUSIVE requests it. A result that is undecided after it is a fail."""
        if self.passes(good, self.n):
            return Verdict.PASS
        if not self.more or self.fails(good, self.n):
            return Verdict.FAIL
        if more_good is None:
            return Verdict.INCONCLUSIVE
        return Verdict.PASS if self.passes(good + more_good, self.n + self.more) else Verdict.FAIL


@dataclass(frozen=True, slots=True)
class RatePlan(TwoLooks):
    """`n` prompts, or `n + more` after an undecided first look, with a required share of `least`."""

    n: int
    least: float
    more: int = 0
    confidence: float = 0.95

    def passes(self, good: int, n: int) -> bool:
        return wilson_lower(good, n, self.confidence) >= self.least

    def fails(self, good: int, n: int) -> bool:
        return wilson_upper(good, n, self.confidence) < self.least


@dataclass(frozen=True, slots=True)
class ZeroPlan:
    """`first` prompts, of which the `named` ones may not fail at all; `second` more after one failure, 0 for none."""

    first: int
    second: int = 0
    named: int = 0

    def judge(self, bad: int, named_bad: int, more_bad: int | None = None) -> Verdict:
        """The verdict on `bad` failures in stage 1, `named_bad` of them named, and `more_bad` in stage 2 (None: not asked)."""
        in_all = bad + (more_bad or 0)
        if named_bad or in_all > (1 if self.second else 0):
            return Verdict.FAIL
        if bad and more_bad is None:
            return Verdict.INCONCLUSIVE
        return Verdict.PASS

    def chance(self, rate: float) -> float:
        """The exact probability that a model passes if it fails each prompt with probability `rate`."""
        clean = (1.0 - rate) ** self.first
        if not self.second:
            return clean
        elsewhere = self.first - self.named
        return clean + elsewhere * rate * (1.0 - rate) ** (self.first - 1 + self.second)

    def upper(self, bad: int, more_bad: int | None = None, confidence: float = 0.95) -> float:
        """The one-sided upper bound of the failure rate after a pass."""
        if bad:  # stage two was asked because of it
            return root(lambda rate: self.chance(rate) - (1.0 - confidence), 0.0, 1.0)
        asked = self.first + (0 if more_bad is None else self.second)
        return clopper_pearson_upper(more_bad or 0, asked, confidence)


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

    def passes(self, good: int, n: int) -> bool:
        up = upper_rank(
            n, self.q, self.confidence
        )  # the upper bound is within the limit if so many values are
        return up is not None and good >= up

    def fails(self, good: int, n: int) -> bool:
        down = lower_rank(
            n, self.q, self.confidence
        )  # the lower bound is beyond the limit if fewer values are within
        return down is not None and good < down
