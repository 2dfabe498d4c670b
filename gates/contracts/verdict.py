"""The values of a decision: three possible verdicts, with the numbers behind them. No logic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, NamedTuple


class Verdict(StrEnum):
    """The outcome of a rule or of a run. What was not measured is INCONCLUSIVE, never PASS."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


Tier = Literal["critical", "supporting", "advisory"]
"""Critical and supporting rules decide. Advisory rules are shown and never decide."""

Rule = Literal["floor", "zero", "rate", "compare", "latency", "ratio"]
"""The kinds of rules: floor (named cases), zero (rule A), rate (B), compare (C), latency and ratio (D)."""

Outcome = Literal["ok", "bad", "lost"]
"""The outcome of one case in one arm. `lost` means that the transport failed after all retries; it is not a judgement."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case in one arm for one gate, bad if any repeat was bad. `why` is one line of evidence that a person can check."""

    case: str
    gate: str
    outcome: Outcome
    stage: int
    named: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval or a one-sided bound at `confidence`; an unbounded side is None."""

    low: float | None
    high: float | None
    confidence: float
    method: str  # "Clopper-Pearson", "Wilson", "Tango", "order statistic", "bootstrap"


@dataclass(frozen=True, slots=True)
class Flip:
    """A case in which candidate and baseline have different outcomes."""

    case: str
    candidate: Outcome
    baseline: Outcome


@dataclass(frozen=True, slots=True)
class GateResult:
    """One rule applied to one gate. `estimate` (in `unit`) has the bounds `interval`; `limit`: the policy's. `extend` requests stage 2."""

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
    flips: tuple[Flip, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlResult:
    """A run whose outcome is known beforehand (FAIL for a negative control, PASS for A/A); it tests the gate itself."""

    name: str
    expected: Verdict
    verdict: Verdict
    because: tuple[str, ...]
    sentence: str

    @property
    def holds(self) -> bool:
        """Whether the control came out as expected."""
        return self.verdict is self.expected


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on a run. `reasons` are the sentences that decided, the worst first."""

    verdict: Verdict
    gates: tuple[GateResult, ...]
    controls: tuple[ControlResult, ...] = ()
    reasons: tuple[str, ...] = field(default=())


class Metric(NamedTuple):
    """A time, of which less is better, or a rate. `name` stands in sentences."""

    title: str
    name: str
    unit: str
    is_rate: bool = False

    @property
    def slower(self) -> float:
        """The sign of a change for the worse."""
        return -1.0 if self.is_rate else 1.0

    def within(self, limit: float) -> str:
        """A limit in words."""
        return f"{'at least' if self.is_rate else 'at most'} {limit:g} {self.unit}"


METRICS: Final[Mapping[str, Metric]] = {
    "ttft": Metric("Time to first token", "TTFT", "ms"),
    "decode": Metric("Decode speed", "decode rate", "tokens/s", is_rate=True),
    "first_sentence": Metric("Time to first sentence", "time to the first sentence", "ms"),
}
