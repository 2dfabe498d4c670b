"""Rule B: a minimum share of successes, by Wilson's bounds, with one extension, after which undecided fails.

Wilson (1927), J. Am. Stat. Assoc. 22:209-212; Brown, Cai & DasGupta (2001), Stat. Sci. 16:101-133; Bowyer, Aitchison & Ivanova (2025),
arXiv 2503.01747: why not the normal approximation.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from gates.stats.binomial import TwoLooks, wilson_lower, wilson_upper


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
