"""The input of every rule: the policy, the measurements, and the results by gate and case. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from gates.contracts.errors import SamplesError
from gates.judge.measurements import Measurements, Timing
from gates.judge.tally import CaseState, ResultIndex, case_states, index_results
from gates.policy.policy import METRICS, Policy


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
    """Index a run. Raises SamplesError: a duplicate result, another suite, or an invalid timing."""
    suite = measurements.suite
    _check(measurements.timings)
    return JudgingContext(
        policy,
        measurements,
        index_results(measurements.candidate, suite),
        index_results(measurements.baseline, suite),
        index_results(measurements.again, suite),
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
