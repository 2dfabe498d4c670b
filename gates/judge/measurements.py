"""The measurements of a run, as the judge takes them. Values only.

`gates.judge.score` makes the case results and `gates.run` the timings; `gates.judge.decide` judges both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gates.artefact.lineage import UNCHECKED, Lineage
from gates.contracts.case import Suite
from gates.contracts.verdict import CaseResult

ArmName = Literal["candidate", "baseline"]


@dataclass(frozen=True, slots=True)
class Timing:
    """One timed request. `value` is in the metric's unit (ms, tokens/s), None if the request failed.

    Timings of the two arms with the same case, bucket, block and pair belong together. A block is a
    period in which both arms run alternately; `pair` numbers the repeats of a case inside it. `bucket` is
    the prompt's length as a label ("0.5k"). Stage 2 is the extension.
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
    """Everything that was measured. The suite says what should be there; the rest is missing.

    `again` is the baseline asked a second time (A/A). Results of stage 2 are there only if the extension
    was asked. `uncounted` says why timed requests of the candidate were not counted, "" if all were.
    `lineage` says whether candidate and baseline are the same model.
    """

    suite: Suite
    candidate: tuple[CaseResult, ...]
    baseline: tuple[CaseResult, ...] = ()
    again: tuple[CaseResult, ...] = ()
    timings: tuple[Timing, ...] = ()
    lineage: Lineage = UNCHECKED
    uncounted: str = ""
