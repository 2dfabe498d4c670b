"""The input of every rule: the policy, the measurements, and the results by gate and case. Pure."""

from dataclasses import dataclass

from gates.judge.measurements import Measurements
from gates.judge.tally import CaseState, ResultIndex, case_states, index_results
from gates.policy.policy import Policy


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
        return case_states(results, self.measurements.suite, gate, stage)


def judging_context(policy: Policy, measurements: Measurements) -> JudgingContext:
    """Index a run."""
    arms = (measurements.candidate, measurements.baseline, measurements.again)
    return JudgingContext(policy, measurements, *map(index_results, arms))
