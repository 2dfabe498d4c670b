"""Rule A: none may fail. An exact plan of two stages, fixed before the run, with its curve.

The unit is a distinct prompt: the same prompt again at temperature 0 is no new evidence, so a
prompt fails if any of its repeats does. Stage one passes at no failure, and fails at a failure
among the named prompts or at the second failure elsewhere, at once: stopping there (curtailment)
changes no outcome. One failure elsewhere asks stage two, which must be clean.

The bound that goes with a pass is Clopper-Pearson's after a clean first stage. After the second it
is that of the whole procedure, outcomes in the order of their stages (Jennison & Turnbull 1983,
Technometrics 25:49-58): "1 of 280" alone would promise more than "0 of 165", though it is worse.

    Hanley & Lippman-Hand (1983), JAMA 249:1743-1745: the rule of three, for `clean_needed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log1p

from gates.contracts.verdict import Verdict
from gates.stats.binomial import clopper_pearson_upper, root


@dataclass(frozen=True, slots=True)
class ZeroPlan:
    """`first` prompts, `named` of them allowed no failure; `second` more after one failure.

    With `second` 0 there is no extension, and any failure fails.
    """

    first: int
    second: int = 0
    named: int = 0

    def judge(self, bad: int, named_bad: int, more_bad: int | None = None) -> Verdict:
        """The verdict on `bad` failures in stage one, `named_bad` of them among the named.

        `more_bad` are the failures of stage two, None if it was not asked. INCONCLUSIVE asks for
        it. Where stage two was asked for other reasons, its failures count like any other.
        """
        in_all = bad + (more_bad or 0)
        if named_bad or in_all > (1 if self.second else 0):
            return Verdict.FAIL
        if bad and more_bad is None:
            return Verdict.INCONCLUSIVE
        return Verdict.PASS

    def chance(self, rate: float) -> float:
        """The chance that a model passes which fails each prompt with chance `rate`, exactly."""
        clean = (1.0 - rate) ** self.first
        if not self.second:
            return clean
        elsewhere = self.first - self.named
        return clean + elsewhere * rate * (1.0 - rate) ** (self.first - 1 + self.second)

    def upper(self, bad: int, more_bad: int | None = None, confidence: float = 0.95) -> float:
        """The one-sided bound of the failure rate that goes with a pass.

        `bad` failures in stage one, `more_bad` in stage two, None if it was not asked.
        """
        if bad:  # stage two was asked because of it
            return root(lambda rate: self.chance(rate) - (1.0 - confidence), 0.0, 1.0)
        asked = self.first + (0 if more_bad is None else self.second)
        return clopper_pearson_upper(more_bad or 0, asked, confidence)


def clean_needed(rate: float, confidence: float = 0.95) -> int:
    """How many clean prompts exclude a failure rate of `rate` or more: 5 % needs 59."""
    return ceil(log(1.0 - confidence) / log1p(-rate))
