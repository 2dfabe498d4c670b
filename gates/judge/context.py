"""The input of every rule, its counts, and the verdict that holds despite lost answers. Pure.

Each rule is applied as if every lost answer had been good, and as if every one had been bad; if they differ, the verdict is
inconclusive. Missing answers can confirm a failure and never a pass.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from operator import add
from typing import Literal

from gates.artefact.artefact import UNCHECKED, Lineage
from gates.contracts.case import Suite, conversations
from gates.contracts.verdict import CaseResult, Outcome, Tier, Verdict
from gates.judge.formatting import percent
from gates.policy.policy import Policy

CaseState = Outcome | Literal["missing"]


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """The number of cases by outcome: `n` that there should be, of which `open` have an unknown outcome."""

    ok: int = 0
    bad: int = 0
    lost: int = 0
    missing: int = 0

    @property
    def open(self) -> int:
        return self.lost + self.missing

    @property
    def n(self) -> int:
        return self.ok + self.bad + self.open

    def __add__(self, other: "OutcomeCounts") -> "OutcomeCounts":
        return OutcomeCounts(*map(add, astuple(self), astuple(other)))


def count_outcomes(found: Iterable[CaseState], least: int = 0) -> OutcomeCounts:
    """The outcomes of these cases; of fewer than `least` the others are missing."""
    seen = Counter(found)
    missing = seen["missing"] + max(0, least - seen.total())
    return OutcomeCounts(seen["ok"], seen["bad"], seen["lost"], missing)


@dataclass(frozen=True, slots=True)
class SettledVerdict:
    """A verdict; `extend` asks for the second stage, `why` it is open, `after` what a sequential one took, `early`: stage one alone decided."""

    verdict: Verdict
    extend: bool = False
    why: str = ""
    after: str = ""
    early: bool = False

    def sentence(
        self, said: str, numbers: str, sure: str, limit: str, tier: Tier, *, cases: str = "", until: str = ""
    ) -> str:
        """A rule in words: finding, numbers, the bound that is `sure` (unless answers are missing), limit, bad cases, and why it is open."""
        inside = "; ".join(filter(None, (numbers, "" if self.why else sure, limit)))
        end = self.why or self.after
        if self.extend:  # an extension is asked only for rules that decide (`gates.judge.decide`)
            end = "undecided: advisory, so nothing more is asked"
            if tier != "advisory":
                end = f"undecided until {until}"
        return f"{said} ({inside}){cases}" + (f"; {end}" if end else "")


Stages = tuple[tuple[int, ...], tuple[int, ...]]
"""What a plan judges of the first stage, and of the second."""


def settle(
    judge: Callable[..., Verdict],
    best: Stages,
    worst: Stages,
    first: OutcomeCounts,
    second: OutcomeCounts,
    max_lost: float,
) -> tuple[SettledVerdict, bool]:
    """The verdict whatever the unknown answers were, good in `best` and bad in `worst`; and whether the second stage was asked."""
    asked = second.n > second.missing
    soon = judge(worst[0])
    early = soon is Verdict.PASS or judge(best[0]) is Verdict.FAIL
    most, least = (judge(*(stages if asked else stages[:1])) for stages in (best, worst))
    if most is Verdict.FAIL:
        return SettledVerdict(Verdict.FAIL, early=early), asked
    seen, extend, late = first + second if asked else first, False, asked and second.missing
    if first.missing:
        why = f"{first.missing} of {first.n} have no result"
    elif seen.lost > max_lost * seen.n:
        share = percent(seen.lost / seen.n)
        why = f"{seen.lost} of {seen.n} answers were lost ({share}); limit: {percent(max_lost)}"
    elif least is Verdict.PASS and (soon is Verdict.PASS or not late):
        return SettledVerdict(Verdict.PASS, early=early), asked
    elif late:
        why = f"{second.missing} of the {second.n} of the extension have no result"
    elif extend := least is Verdict.INCONCLUSIVE:
        why = ""
    else:
        why = f"{seen.lost} of {seen.n} answers were lost, and they could decide"
    return SettledVerdict(Verdict.INCONCLUSIVE, extend, why, early=early), asked


ArmName = Literal["candidate", "baseline"]
Compared = Literal["candidate", "baseline", "again"]


@dataclass(frozen=True, slots=True)
class Timing:
    """One timed request; `value` is in the metric's unit, None if it failed. Timings of both arms with the same case, bucket,
    block and pair belong together. A block is a period in which the arms alternate; `bucket` is the prompt's length.
    """

    metric: str
    arm: ArmName
    case: str
    value: float | None
    bucket: str = ""
    block: int = 0
    pair: int = 0
    stage: int = 1


@dataclass(frozen=True, slots=True)
class Measurements:
    """Everything that was measured; the suite says what should be there. `again`: the baseline asked twice (A/A). `uncounted`:
    why timed requests of the candidate were not counted. `sequential`: the suite is in random order, and is asked until it is decided.
    """

    suite: Suite
    candidate: tuple[CaseResult, ...]
    baseline: tuple[CaseResult, ...] = ()
    again: tuple[CaseResult, ...] = ()
    timings: tuple[Timing, ...] = ()
    lineage: Lineage = UNCHECKED
    uncounted: str = ""
    sequential: bool = False


@dataclass(frozen=True)
class JudgingContext:
    """One run's data, indexed for the rules."""

    policy: Policy
    measurements: Measurements

    @cached_property
    def _outcomes(self) -> Mapping[tuple[Compared, str, str], Outcome]:
        arms: tuple[Compared, ...] = ("candidate", "baseline", "again")
        return {(arm, r.gate, r.case): r.outcome for arm in arms for r in getattr(self.measurements, arm)}

    def states(self, arm: Compared, gate: str, stage: int) -> dict[str, CaseState]:
        """The state of every case of a gate in a stage, in the suite's order."""
        cases = self.measurements.suite.of(gate, stage)
        return {case.id: self._outcomes.get((arm, gate, case.id), "missing") for case in cases}

    @cached_property
    def talks(self) -> Mapping[str, str]:
        """The conversation of every case, in a sequential run."""
        cases = self.measurements.suite.cases if self.measurements.sequential else ()
        return conversations({case.id: case.messages for case in cases})

    def surely(self, words: str) -> str:
        """A bound in words, with the policy's confidence."""
        return f"{percent(self.policy.confidence)} confidence: {words}"
