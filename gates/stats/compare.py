"""Rule C: the loss (b - c) / n against a baseline. Tango's score bounds, and the plan with its exact curve.

"McNemar finds no difference" must not count as a pass: with b = 4 and c = 0 it finds none at any n. Tango's interval has a width even
if nothing differs: b = c = 0 gives an upper bound of z² / (n + z²). The curve depends on the loss and on the *churn*, the share of
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


@lru_cache(maxsize=1 << 14)
def smallest_failing_b(c: int, n: int, margin: float, confidence: float = 0.95) -> int:
    """The smallest number of losses that fails together with c wins; n + 1 if none does."""
    b = smallest_failing_b(c - 1, n, margin, confidence) if c else 0
    while b + c <= n and not fails(b, c, n, margin, confidence):
        b += 1
    return b if b + c <= n else n + 1


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

    def chance(self, loss: float, churn: float) -> float:
        """The exact probability that a candidate passes that loses a prompt with `loss + churn` and wins one with `churn`."""
        return _chance(self, loss + churn, churn)


@lru_cache(maxsize=1 << 10)
def _chance(plan: ComparePlan, lose: float, win: float) -> float:
    """The probability to pass at the first look, plus that of passing at the second after an undecided first."""
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
    """The probability that `asked` more pairs, added to the (b, c) seen, pass a look at n pairs."""
    (lose, win), (b, c) = rates, seen
    total = 0.0
    for more, chance in _likely(asked, win):
        most = largest_b(c + more, n, plan.margin, plan.confidence) - b
        total += chance * cdf(min(most, asked - more), asked - more, lose / (1.0 - win))
    return total


@lru_cache(maxsize=1 << 10)
def _likely(n: int, p: float) -> tuple[tuple[int, float], ...]:
    return tuple((k, chance) for k in range(n + 1) if (chance := pmf(k, n, p)) > _NEVER)
