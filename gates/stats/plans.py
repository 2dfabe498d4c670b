"""Plans that are fixed before the run: rule A (no failure), rule B (a share), rule C (a loss against a baseline), rule D (a quantile). Pure.

A plan has one look, or one extension after an undecided look, after which undecided fails. Sources: Jennison & Turnbull 1983,
Technometrics 25:49-58 (bounds ordered by stage); Bowyer, Aitchison & Ivanova (2025), arXiv 2503.01747 (why not the normal
approximation); Conover, Practical Nonparametric Statistics (1999), 3.2 and Hahn & Meeker, Statistical Intervals (1991), 5.2 (order
statistics).

Rule C's loss is (b - c) / n, by Tango's score bounds. "McNemar finds no difference" must not count as a pass: with b = 4 and c = 0 it finds
none at any n. Tango's interval has a width even if nothing differs: b = c = 0 gives an upper bound of z² / (n + z²). The power depends on
the loss and on the *churn*, the share of prompts that flip in the candidate's favour by chance. Tango (1998), Statistics in Medicine
17:891-908. Liu, Hsueh, Hsieh & Chen (2002), Statistics in Medicine 21:231-245.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import inf, sqrt
from operator import add

from gates.contracts.verdict import Verdict
from gates.stats.binomial import cdf, clopper_pearson_upper, pmf, root, wilson_lower, wilson_upper, z_of


@dataclass(frozen=True, slots=True)
class TwoLooks:
    """A plan: `n` are judged, and `more` after an undecided look. `passes` and `fails` take how many were looked at, and the rule's counts."""

    n: int
    more: int
    passes: Callable[..., bool]
    fails: Callable[..., bool]

    def judge(self, one: Sequence[int], two: Sequence[int] | None = None) -> Verdict:
        """The verdict on the counts of n, and of the extension; INCONCLUSIVE requests it. A result that is undecided after it is a fail."""
        if self.passes(self.n, *one):
            return Verdict.PASS
        if not self.more or self.fails(self.n, *one):
            return Verdict.FAIL
        if two is None:
            return Verdict.INCONCLUSIVE
        return Verdict.PASS if self.passes(self.n + self.more, *map(add, one, two)) else Verdict.FAIL


def rate_plan(n: int, least: float, more: int = 0, confidence: float = 0.95) -> TwoLooks:
    """Rule B over prompts, with a required share of `least`. Good ones are counted."""
    return TwoLooks(
        n,
        more,
        passes=lambda n, good: wilson_lower(good, n, confidence) >= least,
        fails=lambda n, good: wilson_upper(good, n, confidence) < least,
    )


def compare_plan(n: int, margin: float, more: int = 0, confidence: float = 0.95) -> TwoLooks:
    """Rule C over pairs, against a margin of loss. Losses and wins are counted."""
    return TwoLooks(
        n,
        more,
        passes=lambda n, lost, won: passes(lost, won, n, margin, confidence),
        fails=lambda n, lost, won: fails(lost, won, n, margin, confidence),
    )


def quantile_plan(n: int, more: int = 0, q: float = 0.5, confidence: float = 0.95) -> TwoLooks:
    """Rule D over values: a bound of the q-quantile is within a limit, or beyond it, by the number of values within."""
    return TwoLooks(
        n,
        more,
        passes=lambda n, within: within >= (upper_rank(n, q, confidence) or inf),
        fails=lambda n, within: within < (lower_rank(n, q, confidence) or -inf),
    )


@dataclass(frozen=True, slots=True)
class ZeroPlan:
    """`first` prompts, of which the `named` ones may not fail at all; `second` more after one failure, 0 for none."""

    first: int
    second: int = 0
    named: int = 0

    def judge(self, one: Sequence[int], two: Sequence[int] | None = None) -> Verdict:
        """The verdict on the failures in stage 1, and how many of them are named, and on those in stage 2 (None: not asked)."""
        bad, named_bad = one
        if named_bad or bad + sum(two or ()) > (1 if self.second else 0):
            return Verdict.FAIL
        if bad and two is None:
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
    below = accumulate(pmf(i, n, q) for i in range(n))
    return next((rank for rank, chance in enumerate(below, 1) if chance >= confidence), None)


@lru_cache(maxsize=1 << 10)
def lower_rank(n: int, q: float = 0.5, confidence: float = 0.95) -> int | None:
    """The rank (from 1) of the value that bounds the q-quantile from below; None if n is too small."""
    below = accumulate(pmf(i, n, q) for i in range(n))
    return sum(chance <= 1.0 - confidence for chance in below) or None


def score(b: int, c: int, n: int, loss: float) -> float:
    """Tango's score statistic for the hypothesis that the true loss is `loss` (his eq. 2.9); negative if less was observed."""
    seen = b - c - n * loss
    linear = (2 * n - b + c) * loss - b - c
    free = c * loss * (1.0 - loss)
    q = (sqrt(linear * linear + 8.0 * n * free) - linear) / (4.0 * n)
    variance = n * (2.0 * q + loss * (1.0 - loss))
    if variance <= 0.0:
        return 0.0 if seen == 0.0 else inf if seen > 0.0 else -inf
    return seen / sqrt(variance)


def tango_upper(b: int, c: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided score upper bound of the loss, in [-1, 1]."""
    if b == n:
        return 1.0
    z = z_of(confidence)
    return root(lambda loss: score(b, c, n, loss) + z, (b - c) / n, 1.0)


def tango_lower(b: int, c: int, n: int, confidence: float = 0.95) -> float:
    """The one-sided score lower bound of the loss."""
    return -tango_upper(c, b, n, confidence)


_NEVER = 1e-12  # probabilities below this are left out of sums


def passes(b: int, c: int, n: int, margin: float, confidence: float = 0.95) -> bool:
    """Whether Tango's upper bound is within the margin, by the score at the margin itself."""
    return score(b, c, n, margin) <= -z_of(confidence)


def fails(b: int, c: int, n: int, margin: float, confidence: float = 0.95) -> bool:
    """Whether Tango's lower bound is beyond the margin."""
    return score(b, c, n, margin) > z_of(confidence)


@lru_cache(maxsize=1 << 14)
def largest_b(c: int, n: int, margin: float, confidence: float = 0.95) -> int:
    """The largest number of losses that passes together with c wins; -1 if none does."""
    b = largest_b(c - 1, n, margin, confidence) if c else -1
    while b + 1 + c <= n and passes(b + 1, c, n, margin, confidence):
        b += 1
    return min(b, n - c)


@lru_cache(maxsize=1 << 10)
def pass_chance(n: int, margin: float, loss: float, churn: float, confidence: float = 0.95) -> float:
    """The exact probability that n pairs pass of a candidate that loses a prompt with `loss + churn` and wins one with `churn`."""
    total = 0.0
    for c in range(n + 1):
        if (chance := pmf(c, n, churn)) > _NEVER:
            total += chance * cdf(largest_b(c, n, margin, confidence), n - c, (loss + churn) / (1.0 - churn))
    return total
