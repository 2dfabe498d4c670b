"""The plan of rule C: what Tango's bounds accept at n pairs, once extended, and its exact curve.

A look passes if the one-sided upper bound of the loss is within the margin, fails if the lower
bound is beyond it, and is open in between; after the extension an open look fails. The chance to
pass is enumerated over both kinds of discordant pairs; it depends on the loss and on the *churn*,
the share of prompts that flip in the candidate's favour by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from gates.contracts.verdict import Verdict
from gates.stats.binomial import cdf, pmf, z_of
from gates.stats.paired import score

_NEVER = 1e-12  # chances below this are left out of a sum


def passes(b: int, c: int, n: int, margin: float, confidence: float = 0.95) -> bool:
    """Whether Tango's upper bound is within the margin; the score is asked at the margin itself."""
    return score(b, c, n, margin) <= -z_of(confidence)


def fails(b: int, c: int, n: int, margin: float, confidence: float = 0.95) -> bool:
    """Whether Tango's lower bound is beyond the margin."""
    return score(b, c, n, margin) > z_of(confidence)


@lru_cache(maxsize=1 << 14)
def largest_b(c: int, n: int, margin: float, confidence: float = 0.95) -> int:
    """The most losses that pass beside c wins; -1 if not even none do."""
    b = largest_b(c - 1, n, margin, confidence) if c else -1
    while b + 1 + c <= n and passes(b + 1, c, n, margin, confidence):
        b += 1
    return min(b, n - c)


@lru_cache(maxsize=1 << 14)
def smallest_failing_b(c: int, n: int, margin: float, confidence: float = 0.95) -> int:
    """The fewest losses that fail beside c wins; n + 1 if none do."""
    b = smallest_failing_b(c - 1, n, margin, confidence) if c else 0
    while b + c <= n and not fails(b, c, n, margin, confidence):
        b += 1
    return b if b + c <= n else n + 1


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """`n` pairs, or `n + more` after an open first look, against a margin of loss."""

    n: int
    margin: float
    more: int = 0
    confidence: float = 0.95

    def judge(self, b: int, c: int, more_b: int | None = None, more_c: int | None = None) -> Verdict:
        """The verdict on the discordant pairs of stage one, and of the extension if it was asked.

        INCONCLUSIVE asks for the extension. What stage one decides, stands.
        """
        if passes(b, c, self.n, self.margin, self.confidence):
            return Verdict.PASS
        if not self.more or fails(b, c, self.n, self.margin, self.confidence):
            return Verdict.FAIL
        if more_b is None or more_c is None:
            return Verdict.INCONCLUSIVE
        late = passes(b + more_b, c + more_c, self.n + self.more, self.margin, self.confidence)
        return Verdict.PASS if late else Verdict.FAIL

    def chance(self, loss: float, churn: float) -> float:
        """The chance that a candidate passes, exactly.

        It loses a prompt with chance `loss + churn` and wins one with chance `churn`.
        """
        return _chance(self, loss + churn, churn)


@lru_cache(maxsize=1 << 10)
def _chance(plan: ComparePlan, lose: float, win: float) -> float:
    """The chance to pass at once, and that of an open first look and a pass at the second."""
    total = _accepted(plan, plan.n, (lose, win), (0, 0), plan.n)
    for c, chance_c in _likely(plan.n, win) if plan.more else ():
        low = largest_b(c, plan.n, plan.margin, plan.confidence) + 1
        high = smallest_failing_b(c, plan.n, plan.margin, plan.confidence)
        for b in range(low, min(high, plan.n - c + 1)):
            chance = chance_c * pmf(b, plan.n - c, lose / (1.0 - win))
            if chance > _NEVER:
                total += chance * _accepted(plan, plan.n + plan.more, (lose, win), (b, c), plan.more)
    return total


def _accepted(
    plan: ComparePlan, n: int, rates: tuple[float, float], seen: tuple[int, int], asked: int
) -> float:
    """The chance that `asked` more pairs, on top of the (b, c) seen, pass a look at n pairs."""
    (lose, win), (b, c) = rates, seen
    total = 0.0
    for more, chance in _likely(asked, win):
        most = largest_b(c + more, n, plan.margin, plan.confidence) - b
        total += chance * cdf(min(most, asked - more), asked - more, lose / (1.0 - win))
    return total


@lru_cache(maxsize=1 << 10)
def _likely(n: int, p: float) -> tuple[tuple[int, float], ...]:
    return tuple((k, chance) for k in range(n + 1) if (chance := pmf(k, n, p)) > _NEVER)


def resolving_n(margin: float, confidence: float = 0.95) -> int:
    """The fewest pairs that can pass at all, with none discordant: 52 for a margin of 0.05."""
    z = z_of(confidence)
    n = max(1, ceil(z * z * (1.0 - margin) / margin) - 1)
    while not passes(0, 0, n, margin, confidence):
        n += 1
    return n


def smallest_n(margin: float, churn: float, power: float = 0.8, confidence: float = 0.95) -> int:
    """The fewest pairs, in steps of ten, with which one look passes an equal model with chance `power`."""
    n = ceil(resolving_n(margin, confidence) / 10) * 10
    while ComparePlan(n, margin, confidence=confidence).chance(0.0, churn) < power:
        n += 10
    return n
