"""The measurements of a run, as the judge takes them. Values only."""

from dataclasses import dataclass
from typing import Literal

from gates.artefact.lineage import UNCHECKED, Lineage
from gates.contracts.case import Suite
from gates.contracts.verdict import CaseResult

ArmName = Literal["candidate", "baseline"]


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
    why timed requests of the candidate were not counted.
    """

    suite: Suite
    candidate: tuple[CaseResult, ...]
    baseline: tuple[CaseResult, ...] = ()
    again: tuple[CaseResult, ...] = ()
    timings: tuple[Timing, ...] = ()
    lineage: Lineage = UNCHECKED
    uncounted: str = ""
