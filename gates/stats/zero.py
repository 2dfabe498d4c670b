"""Rule A: no failure. An exact plan of two stages, fixed before the run, with its curve.

The unit is a distinct prompt: asking the same prompt again at temperature 0 is no new evidence, so a
prompt fails if any of its repeats does. Stage 1 passes without a failure. It fails at once at a
failure among the named prompts or at the second failure elsewhere; stopping early (curtailment) does
not change the outcome. One failure elsewhere requires stage 2, which must be clean.

After a clean first stage the bound is Clopper-Pearson's. After the second it is that of the whole
procedure, with outcomes ordered by stage (Jennison & Turnbull 1983, Technometrics 25:49-58): the bound
of "1 of 280" alone would be better than that of "0 of 165", although the result is worse.
"""

from __future__ import annotations

from dataclasses import dataclass

from gates.contracts.verdict import Verdict
from gates.stats.binomial import clopper_pearson_upper, root


@dataclass(frozen=True, slots=True)
class ZeroPlan:
    """`first` prompts, of which the `named` ones may not fail at all; `second` more after one failure.

    If `second` is 0 there is no extension, and any failure fails.
    """

    first: int
    second: int = 0
    named: int = 0

    def judge(self, bad: int, named_bad: int, more_bad: int | None = None) -> Verdict:
        """The verdict on `bad` failures in stage 1, `named_bad` of them among the named prompts.

        `more_bad` are the failures of stage 2, None if it was not asked. INCONCLUSIVE requests it. If stage 2
        was asked for another reason, its failures count as well.
        """
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
        """The one-sided upper bound of the failure rate after a pass.

        `bad` failures in stage 1, `more_bad` in stage 2, None if it was not asked.
        """
        if bad:  # stage two was asked because of it
            return root(lambda rate: self.chance(rate) - (1.0 - confidence), 0.0, 1.0)
        asked = self.first + (0 if more_bad is None else self.second)
        return clopper_pearson_upper(more_bad or 0, asked, confidence)
