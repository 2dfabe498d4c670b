"""The requests of each part of a gate job: stages, A/A, negative controls, latency. Pure."""

from collections.abc import Collection, Iterable
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


def stage_requests(
    job: GateJob, cases: Iterable[Case] | None = None, *, stage: int = 1, gates: Collection[str] | None = None
) -> tuple[PlannedRequest, ...]:
    """A stage of both arms, case by case, with every repeat that a gate counts; only these cases, or of these gates, if given."""
    suite = job.suite if cases is None else replace(job.suite, cases=tuple(cases))
    arms, wanted = [job.arms[CANDIDATE], job.arms[BASELINE]], job.policy.gates if gates is None else gates
    return plan_requests(suite, arms, policy=job.policy, stage=stage, gates=wanted)


def self_comparison_requests(job: GateJob) -> tuple[PlannedRequest, ...]:
    """The baseline once more (A/A): the first cases of every comparative gate, at temperature 0; a sequential run may lack the first time."""
    if SELF_COMPARISON not in job.policy.required_controls:
        return ()
    compared = [name for name, rules in job.policy.gates.items() if rules.compare]
    arms = [job.arms[arm] for arm in ((BASELINE, AGAIN) if job.sequential else (AGAIN,))]
    suite = _first(job.suite, compared, job.policy.same.n)
    return plan_requests(suite, arms, policy=job.policy, gates=job.policy.gates, greedy=True)


def control_requests(job: GateJob) -> tuple[PlannedRequest, ...]:
    """Every negative control, on the gates that it has to fail, at temperature 0; in a sequential run, on as many prompts of each as A/A."""
    most = job.policy.same.n if job.sequential else None
    made = list[PlannedRequest]()
    for control in job.policy.controls:
        suite, arm = _first(job.suite, control.breaks, most), job.arms[f"{CONTROL_PREFIX}{control.name}"]
        made += plan_requests(suite, [arm], policy=job.policy, gates=control.breaks, greedy=True)
    return tuple(made)


def _first(suite: Suite, gates: Iterable[str], most: int | None) -> Suite:
    """The suite with the first cases of each of these gates."""
    chosen = {case.id: case for gate in gates for case in suite.of(gate, 1)[:most]}
    return replace(suite, cases=tuple(chosen.values()))


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
        blocks=speed.blocks,
        pause_s=(speed.pause[0], speed.pause[1]),
        chars_per_token=chars_per_token,
    )
