"""Rule B: at least a share must succeed. Wilson's bound against the floor, one extension.

A look passes if the one-sided Wilson lower bound reaches the floor, fails if the upper bound
stays under it, and is open in between. After the extension an open look fails. Two looks give a
model that sits exactly on the floor more than one chance, and Wilson covers on average only: both
are in the exact curve, which is what the plan promises.

    Wilson (1927), J. Am. Stat. Assoc. 22:209-212; Brown, Cai & DasGupta (2001), Stat. Sci. 16:101-133.
    Bowyer, Aitchison & Ivanova (2025), arXiv 2503.01747: why not the normal approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from gates.contracts.verdict import Verdict
from gates.stats.binomial import two_looks, wilson_lower, wilson_upper


@lru_cache(maxsize=1 << 12)
def needed(n: int, least: float, confidence: float = 0.95) -> float:
    """The fewest successes of n that pass one look; infinity if none do."""
    return next((k for k in range(n + 1) if wilson_lower(k, n, confidence) >= least), inf)


@lru_cache(maxsize=1 << 12)
def dropped(n: int, least: float, confidence: float = 0.95) -> int:
    """The most successes of n that fail one look; -1 if none do."""
    return sum(wilson_upper(k, n, confidence) < least for k in range(n + 1)) - 1


@dataclass(frozen=True, slots=True)
class RatePlan:
    """`n` prompts, or `n + more` after an open first look, against a floor of `least`."""

    n: int
    least: float
    more: int = 0
    confidence: float = 0.95

    def judge(self, good: int, more_good: int | None = None) -> Verdict:
        """The verdict on `good` successes of n; `more_good` of the extension, None if not asked.

        INCONCLUSIVE asks for the extension. What stage one decides, stands.
        """
        if good >= needed(self.n, self.least, self.confidence):
            return Verdict.PASS
        if not self.more or good <= dropped(self.n, self.least, self.confidence):
            return Verdict.FAIL
        if more_good is None:
            return Verdict.INCONCLUSIVE
        in_all = needed(self.n + self.more, self.least, self.confidence)
        return Verdict.PASS if good + more_good >= in_all else Verdict.FAIL

    def chance(self, rate: float) -> float:
        """The chance that a model passes which succeeds with chance `rate`, exactly."""
        need = needed(self.n, self.least, self.confidence)
        drop = dropped(self.n, self.least, self.confidence)
        in_all = needed(self.n + self.more, self.least, self.confidence) if self.more else inf
        return two_looks(self.n, need, drop, self.more, in_all, rate)


def smallest_n(least: float, true: float, power: float = 0.8, confidence: float = 0.95) -> int:
    """The fewest prompts with which one look passes a model of rate `true` with chance `power`.

    Raises ValueError where `true` is not above the floor: no number of prompts is enough.
    """
    if true <= least:
        raise ValueError(f"a model at {true} cannot be shown to be above {least}")
    n = 1
    while RatePlan(n, least, confidence=confidence).chance(true) < power:
        n += 1
    return n
