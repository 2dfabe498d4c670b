"""The requests of each part of a gate job: stages, A/A, negative controls, latency. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from gates.contracts.case import Case, Suite
from gates.contracts.errors import RunError
from gates.contracts.sample import AGAIN, BASELINE, CANDIDATE, CONTROL_PREFIX, Sample
from gates.policy.policy import SELF_COMPARISON
from gates.reply.reply import read_reply
from gates.run.conversation import buckets_within
from gates.run.gate_job import GateJob
from gates.run.latency_schedule import Schedule
from gates.run.request import PlannedRequest, plan_requests
from gates.run.target import Arm


def first_stage_requests(job: GateJob, cases: Iterable[Case] | None = None) -> tuple[PlannedRequest, ...]:
    """Stage 1 of both arms, case by case, with every repeat that a gate counts; only these cases, if given."""
    return _job_requests(job, compared_arms(job), stage=1, gates=job.policy.gates, cases=cases)


def extension_requests(job: GateJob, gates: Collection[str]) -> tuple[PlannedRequest, ...]:
    """The extension (stage 2) of these gates."""
    return _job_requests(job, compared_arms(job), stage=2, gates=gates)


def self_comparison_requests(job: GateJob) -> tuple[PlannedRequest, ...]:
    """The baseline once more (A/A): the first cases of every comparative gate, at temperature 0; a sequential run may lack the first time."""
    policy, chosen = job.policy, dict[str, Case]()
    if SELF_COMPARISON not in policy.required_controls:
        return ()
    for gate in (name for name, rules in policy.gates.items() if rules.compare):
        chosen |= {case.id: case for case in job.suite.of(gate, 1)[: policy.same.n]}
    arms = [job.arms[arm] for arm in ((BASELINE, AGAIN) if job.sequential else (AGAIN,))]
    return _job_requests(job, arms, stage=1, gates=policy.gates, cases=chosen.values(), greedy=True)


def control_requests(job: GateJob) -> tuple[PlannedRequest, ...]:
    """Every negative control, on the gates that it has to fail, at temperature 0; in a sequential run, on as many prompts of each as A/A."""
    most = job.policy.same.n if job.sequential else None
    return tuple(
        ask
        for control in job.policy.controls
        for ask in _job_requests(
            job, [job.arms[f"{CONTROL_PREFIX}{control.name}"]], stage=1, gates=control.breaks, greedy=True,
            cases={case.id: case for gate in control.breaks for case in job.suite.of(gate, 1)[:most]}.values(),
        )
    )  # fmt: skip


def latency_prompts(suite: Suite, samples: Iterable[Sample]) -> tuple[Case, ...]:
    """Prompts for timing: those with the longest replies of the baseline, without tool calls, for a decode rate."""
    made: dict[str, int] = {}
    for sample in samples:
        if sample.key.arm == BASELINE and sample.key.repeat == 0 and sample.key.mode == "stream":
            reply = read_reply(sample)
            made[sample.key.case] = 0 if reply.calls else reply.completion_tokens or 0
    spoken = [case for case in suite.of("empty", 1) if made.get(case.id)]
    return tuple(sorted(spoken, key=lambda case: (-made[case.id], case.id)))


def latency_schedule(job: GateJob, chars_per_token: float) -> Schedule:
    """The policy's schedule, limited to prompt lengths that fit both engines' contexts."""
    speed = job.policy.speed
    room = min(job.candidate.context, job.baseline.context)
    buckets = buckets_within(room, Schedule().max_tokens, speed.buckets)
    if not buckets:
        raise RunError(f"no prompt length of the policy fits a context of {room} tokens; set smaller buckets")
    return Schedule(
        buckets=buckets,
        regime=speed.regime,
        blocks=speed.blocks,
        pause_s=(speed.pause[0], speed.pause[1]),
        chars_per_token=chars_per_token,
    )


def compared_arms(job: GateJob) -> list[Arm]:
    """Candidate and baseline."""
    return [job.arms[CANDIDATE], job.arms[BASELINE]]


def _job_requests(
    job: GateJob,
    arms: Sequence[Arm],
    *,
    stage: int,
    gates: Collection[str],
    cases: Iterable[Case] | None = None,
    greedy: bool = False,
) -> tuple[PlannedRequest, ...]:
    policy, suite = job.policy, job.suite
    temperatures = policy.run.temperatures
    cold = {temperatures.index(0.0)}

    def numbers(case: Case) -> Collection[int]:
        asked = policy.asked(gate for gate in case.gates if gate in gates)
        return cold.intersection(asked) if greedy else asked

    ordered = sorted(suite.cases if cases is None else cases, key=lambda case: not case.named)
    return plan_requests(
        replace(suite, cases=tuple(ordered)), arms, stage=stage, gates=gates, temperatures=temperatures,
        numbers=numbers, whole=not greedy,
    )  # fmt: skip
