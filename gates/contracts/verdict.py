"""The values that a decision is made of: three-valued, with the numbers that led to it. No logic."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Verdict(StrEnum):
    """Nothing measured is never PASS."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


Tier = Literal["critical", "supporting", "advisory"]
"""critical and supporting decide (with their margins); advisory is shown and never decides."""

Rule = Literal["floor", "zero", "rate", "compare", "latency", "ratio"]
"""The kinds of rules: the seeds' floors, and A (zero) to D (latency, ratio)."""

Outcome = Literal["ok", "bad", "lost"]
"""Of one case in one arm: `lost` is a transport fault that outlived its retries, never a judgement."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case in one arm for one gate: bad if any of its repeats was.

    `why` is one line of evidence a person can check ("markdown: bullet_list at 14: '- milk'").
    """

    case: str
    gate: str
    outcome: Outcome
    stage: int
    named: bool
    repeats: int = 1
    why: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """A one-sided or two-sided bound at `confidence`; a side that is not bounded is None."""

    low: float | None
    high: float | None
    confidence: float
    method: str  # "Clopper-Pearson", "Wilson", "Tango", "order statistic", "bootstrap"


@dataclass(frozen=True, slots=True)
class Pass:
    """A point of an operating curve: a model whose true rate is `rate` passes with `chance`."""

    rate: float
    chance: float


@dataclass(frozen=True, slots=True)
class Flip:
    """A case on which candidate and baseline disagree."""

    case: str
    candidate: Outcome
    baseline: Outcome


@dataclass(frozen=True, slots=True)
class GateResult:
    """One rule applied to one gate.

    `rule` is "floor", "zero" (rule A), "rate" (B), "compare" (C), "latency" or "ratio" (D).
    `estimate` is the measured rate, loss, or quantile (in `unit`); `interval` its bound, `limit`
    what the policy allows. `extend` asks for the pre-registered second stage: the verdict is then
    INCONCLUSIVE until it was run. `sentence` says all of it in words; `curve` and `curve_words`
    are what the rule would let through.
    """

    gate: str
    rule: Rule
    tier: Tier
    verdict: Verdict
    n: int
    bad: int
    estimate: float | None
    interval: Interval | None
    limit: float | None
    unit: str
    sentence: str
    extend: bool = False
    curve: tuple[Pass, ...] = ()
    curve_words: str = ""
    flips: tuple[Flip, ...] = ()
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """A run whose outcome is known beforehand: the gate's own test.

    `expected` is FAIL for a negative control and PASS for the A/A run; `because` are the gates
    that failed. A control that came out otherwise makes the whole report INCONCLUSIVE.
    """

    name: str
    expected: Verdict
    verdict: Verdict
    because: tuple[str, ...]
    sentence: str

    @property
    def holds(self) -> bool:
        """Whether it came out as it had to."""
        return self.verdict is self.expected


@dataclass(frozen=True, slots=True)
class Decision:
    """The whole judgement. `reasons` are the sentences that decided, the worst first."""

    verdict: Verdict
    gates: tuple[GateResult, ...]
    controls: tuple[Control, ...] = ()
    reasons: tuple[str, ...] = field(default=())
