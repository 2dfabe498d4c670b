"""What every rule is handed: the policy, what was measured, and the results by gate and case. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from gates.contracts.errors import SamplesError
from gates.judge.outcomes import Outcomes, Timing
from gates.judge.tally import Results, State, indexed, states
from gates.policy.values import METRICS, Policy


@dataclass(frozen=True, slots=True)
class Docket:
    """One run before the judge."""

    policy: Policy
    outcomes: Outcomes
    candidate: Results
    baseline: Results
    again: Results

    def of(self, results: Results, gate: str, stage: int) -> dict[str, State]:
        """The state of every case of a gate in a stage, in the suite's order."""
        return states(results, self.outcomes.suite, gate, stage)


def docket(policy: Policy, outcomes: Outcomes) -> Docket:
    """The run, indexed.

    Raises:
        SamplesError: a result that is there twice or of another suite, or a timing that is none.
    """
    suite = outcomes.suite
    _check(outcomes.timings)
    return Docket(
        policy,
        outcomes,
        indexed(outcomes.candidate, suite),
        indexed(outcomes.baseline, suite),
        indexed(outcomes.again, suite),
    )


def _check(timings: Iterable[Timing]) -> None:
    seen = set()
    for t in timings:
        where = f"{t.metric} of {t.arm}, {t.case} in block {t.block}, pair {t.pair}"
        if t.metric not in METRICS:
            raise SamplesError(f"{where}: there is no such metric; there are {', '.join(METRICS)}")
        if t.value is not None and not 0.0 < t.value < inf:
            raise SamplesError(f"{where}: {t.value} is no measurement; a failed request has none")
        key = (t.metric, t.arm, t.case, t.bucket, t.block, t.pair)
        if key in seen:
            raise SamplesError(f"{where}: timed twice")
        seen.add(key)
