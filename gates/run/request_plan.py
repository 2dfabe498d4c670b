"""What a gate job asks, part by part: the stages, the baseline again, the controls, the clock. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gates.contracts.case import Case, Suite
from gates.contracts.errors import RunError
from gates.contracts.sample import Sample
from gates.policy.values import SAME
from gates.reply.reply import read_reply
from gates.run.context import buckets_within
from gates.run.job_spec import AGAIN, BASELINE, CANDIDATE, CONTROL, Job
from gates.run.latency import Schedule
from gates.run.plan import Ask, plan, repeats_at
from gates.run.target import Arm


def first_stage(job: Job, *, named: bool = False) -> tuple[Ask, ...]:
    """Both arms, case by case, with every repeat that some gate counts; only the named ones if asked."""
    chosen = {case.id: case for case in job.suite.cases if case.named} if named else None
    return _asks(job, pair(job), stage=1, gates=job.policy.gates, cases=chosen)


def second_stage(job: Job, gates: Collection[str]) -> tuple[Ask, ...]:
    """The registered extension of these gates."""
    return _asks(job, pair(job), stage=2, gates=gates)


def again(job: Job) -> tuple[Ask, ...]:
    """The baseline once more: the first cases of every comparative gate, at temperature 0."""
    policy, chosen = job.policy, dict[str, Case]()
    if SAME not in policy.wanted_controls:
        return ()
    for gate in (name for name, rules in policy.gates.items() if rules.compare):
        chosen |= {case.id: case for case in job.suite.of(gate, 1)[: policy.same.n]}
    return _asks(job, [job.arms[AGAIN]], stage=1, gates=policy.gates, cases=chosen, greedy=True)


def controls(job: Job) -> tuple[Ask, ...]:
    """Every negative control, on the gates that it has to fail, at temperature 0."""
    return tuple(
        ask
        for control in job.policy.controls
        for ask in _asks(
            job, [job.arms[f"{CONTROL}{control.name}"]], stage=1, gates=control.breaks, greedy=True
        )
    )


def speakers(suite: Suite, samples: Iterable[Sample]) -> tuple[Case, ...]:
    """Prompts to time: those that the baseline answered longest, in words and without a tool.

    A decode rate needs tokens to count; time to the first of them does not mind.
    """
    made: dict[str, int] = {}
    for sample in samples:
        if sample.key.arm == BASELINE and sample.key.repeat == 0 and sample.key.mode == "stream":
            reply = read_reply(sample)
            made[sample.key.case] = 0 if reply.calls else reply.completion_tokens or 0
    spoken = [case for case in suite.of("empty", 1) if made.get(case.id)]
    return tuple(sorted(spoken, key=lambda case: (-made[case.id], case.id)))


def speed_schedule(job: Job, chars_per_token: float) -> Schedule:
    """The policy's schedule, within the context that both engines have."""
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


def pair(job: Job) -> list[Arm]:
    """The two arms that are compared."""
    return [job.arms[CANDIDATE], job.arms[BASELINE]]


def _asks(
    job: Job,
    arms: Sequence[Arm],
    *,
    stage: int,
    gates: Collection[str],
    cases: Mapping[str, Case] | None = None,
    greedy: bool = False,
) -> tuple[Ask, ...]:
    policy, suite = job.policy, job.suite
    temperatures = policy.run.temperatures
    cold = {temperatures.index(0.0)}

    def numbers(case: Case) -> Collection[int]:
        asked = policy.asked(gate for gate in case.gates if gate in gates)
        return cold.intersection(asked) if greedy else asked

    kept = suite.cases if cases is None else tuple(cases.values())
    ordered = sorted(kept, key=lambda case: not case.named)
    repeats = repeats_at(temperatures, suite.sampling.seed)
    return plan(
        replace(suite, cases=tuple(ordered)), arms, stage=stage, gates=gates, repeats=repeats,
        numbers=numbers, whole=not greedy,
    )  # fmt: skip
