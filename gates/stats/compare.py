"""Rule C: the loss (b - c) / n against a baseline. Tango's score bounds, the plan, and its power.

"McNemar finds no difference" must not count as a pass: with b = 4 and c = 0 it finds none at any n. Tango's interval has a width even
if nothing differs: b = c = 0 gives an upper bound of z² / (n + z²). The power depends on the loss and on the *churn*, the share of
prompts that flip in the candidate's favour by chance. Tango (1998), Statistics in Medicine 17:891-908. Liu, Hsueh, Hsieh & Chen (2002),
Statistics in Medicine 21:231-245.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf, sqrt

from gates.contracts.verdict import Verdict
from gates.stats.binomial import cdf, pmf, root, z_of


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


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """`n` pairs, or `n + more` after an undecided first look, against a margin of loss."""

    n: int
    margin: float
    more: int = 0
    confidence: float = 0.95

    def judge(self, b: int, c: int, more_b: int | None = None, more_c: int | None = None) -> Verdict:
        """The verdict on the discordant pairs of stage 1, and of the extension; INCONCLUSIVE requests it."""
        if passes(b, c, self.n, self.margin, self.confidence):
            return Verdict.PASS
        if not self.more or fails(b, c, self.n, self.margin, self.confidence):
            return Verdict.FAIL
        if more_b is None or more_c is None:
            return Verdict.INCONCLUSIVE
        late = passes(b + more_b, c + more_c, self.n + self.more, self.margin, self.confidence)
        return Verdict.PASS if late else Verdict.FAIL


@lru_cache(maxsize=1 << 10)
def pass_chance(n: int, margin: float, loss: float, churn: float, confidence: float = 0.95) -> float:
    """The exact probability that n pairs pass of a candidate that loses a prompt with `loss + churn` and wins one with `churn`."""
    total = 0.0
    for c in range(n + 1):
        if (chance := pmf(c, n, churn)) > _NEVER:
            total += chance * cdf(largest_b(c, n, margin, confidence), n - c, (loss + churn) / (1.0 - churn))
    return total
