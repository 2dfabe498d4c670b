"""Plans with exact operating curves, fixed before the run: rule A (no failure), rule B (a share), rule D (a quantile). Pure.

A plan has one look, or one extension after an undecided look, after which undecided fails. Sources: Jennison & Turnbull 1983,
Technometrics 25:49-58 (bounds ordered by stage); Bowyer, Aitchison & Ivanova (2025), arXiv 2503.01747 (why not the normal
approximation); Conover, Practical Nonparametric Statistics (1999), 3.2 and Hahn & Meeker, Statistical Intervals (1991), 5.2 (order
statistics).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from gates.contracts.verdict import Verdict
from gates.stats.binomial import cdf, clopper_pearson_upper, pmf, root, tail, wilson_lower, wilson_upper


class TwoLooks:
    """The plan of a rule: `n` are judged, and `more` after an undecided first look (0: there is none)."""

    __slots__ = ()
    n: int
    more: int

    def _marks(self, n: int) -> tuple[float, float]:
        """The smallest number of good ones that passes a look at n, and the largest that fails it."""
        raise NotImplementedError

    def judge(self, good: int, more_good: int | None = None) -> Verdict:
        """The verdict on `good` of n, and of the extension; INCONCLUSIVE requests it. A result that is undecided after it is a fail."""
        need, drop = self._marks(self.n)
        if good >= need:
            return Verdict.PASS
        if not self.more or good <= drop:
            return Verdict.FAIL
        if more_good is None:
            return Verdict.INCONCLUSIVE
        return Verdict.PASS if good + more_good >= self._marks(self.n + self.more)[0] else Verdict.FAIL

    def chance(self, rate: float) -> float:
        """The exact probability to pass if each is good with probability `rate`."""
        need_in_all = self._marks(self.n + self.more)[0] if self.more else inf
        return two_looks(self.n, *self._marks(self.n), self.more, need_in_all, rate)


@lru_cache(maxsize=1 << 10)
def two_looks(n: int, need: float, drop: float, more: int, need_in_all: float, p: float) -> float:
    """The exact probability to pass one look and at most one extension: `need` of the first `n` pass, `drop` or fewer fail; in between,
    `more` are asked, and `need_in_all` of all pass. Infinity: cannot be passed.
    """
    at_once = 0.0 if need == inf else tail(int(need), n, p)
    if more == 0 or need_in_all == inf:
        return at_once
    between = range(max(0, int(drop) + 1), int(min(need, n + 1)))
    return at_once + sum(pmf(k, n, p) * tail(int(need_in_all) - k, more, p) for k in between)


@lru_cache(maxsize=1 << 12)
def needed(n: int, least: float, confidence: float = 0.95) -> float:
    """The smallest number of successes of n that passes one look; infinity if none does."""
    return next((k for k in range(n + 1) if wilson_lower(k, n, confidence) >= least), inf)


def can_pass(n: int, least: float, confidence: float = 0.95) -> bool:
    """Whether n successes of n pass one look."""
    return wilson_lower(n, n, confidence) >= least


@lru_cache(maxsize=1 << 12)
def dropped(n: int, least: float, confidence: float = 0.95) -> int:
    """The largest number of successes of n that fails one look; -1 if none does."""
    return sum(wilson_upper(k, n, confidence) < least for k in range(n + 1)) - 1


@dataclass(frozen=True, slots=True)
class RatePlan(TwoLooks):
    """`n` prompts, or `n + more` after an undecided first look, with a required share of `least`."""

    n: int
    least: float
    more: int = 0
    confidence: float = 0.95

    def _marks(self, n: int) -> tuple[float, float]:
        return needed(n, self.least, self.confidence), dropped(n, self.least, self.confidence)


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

    def _marks(self, n: int) -> tuple[float, float]:
        up, down = upper_rank(n, self.q, self.confidence), lower_rank(n, self.q, self.confidence)
        # The upper bound is within the limit if `up` values are; the lower bound is beyond it if fewer
        # than `down` are.
        return (inf if up is None else up, -1 if down is None else down - 1)
