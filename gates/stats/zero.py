"""Rule A: no failure. An exact plan of two stages, fixed before the run, with its curve. The unit is a distinct prompt.

Stage 1 fails at a failure among the named prompts or at the second elsewhere; one elsewhere requires a clean stage 2. The bound
after stage 2 orders outcomes by stage (Jennison & Turnbull 1983, Technometrics 25:49-58).
"""

from dataclasses import dataclass

from gates.contracts.verdict import Verdict
from gates.stats.binomial import clopper_pearson_upper, root


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
