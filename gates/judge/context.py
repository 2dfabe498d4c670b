"""The input of every rule: the policy, the measurements, and the results by gate and case. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from gates.contracts.verdict import CaseResult
from gates.judge.measurements import Measurements
from gates.judge.tally import CaseState
from gates.policy.policy import Policy

ResultIndex = Mapping[tuple[str, str], CaseResult]
"""Results by gate and case."""


@dataclass(frozen=True, slots=True)
class JudgingContext:
    """One run's data, indexed for the rules."""

    policy: Policy
    measurements: Measurements
    candidate: ResultIndex
    baseline: ResultIndex
    again: ResultIndex

    def of(self, results: ResultIndex, gate: str, stage: int) -> dict[str, CaseState]:
        """The state of every case of a gate in a stage, in the suite's order."""
        cases = self.measurements.suite.of(gate, stage)
        found = {case.id: results.get((gate, case.id)) for case in cases}
        return {case: result.outcome if result else "missing" for case, result in found.items()}


def judging_context(policy: Policy, measurements: Measurements) -> JudgingContext:
    """Index a run."""
    arms = (measurements.candidate, measurements.baseline, measurements.again)
    indexed = ({(result.gate, result.case): result for result in arm} for arm in arms)
    return JudgingContext(policy, measurements, *indexed)
