"""The plan of rule C: which losses Tango's bounds accept at n pairs with one extension, and its exact curve.

The curve depends on the loss and on the *churn*, the share of prompts that flip in the candidate's favour by chance.
"""

from dataclasses import dataclass
from functools import lru_cache

from gates.contracts.verdict import Verdict
from gates.stats.binomial import cdf, pmf, z_of
from gates.stats.paired import score

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
