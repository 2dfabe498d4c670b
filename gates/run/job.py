"""The whole gate job: ask, score, judge, prove that it can fail, time, and write the report.

    named cases of both arms, then the rest of the first stage -> judged after each: a failure that
       nothing can undo ends it there, unless the whole stage is wanted
    -> the registered extension of the gates that asked for it, once
    -> A/A (the baseline again) and the negative controls, which must come out as they have to
    -> latency, arms by turns -> judged once more -> the report

Everything asked is in the ledger; a job that was killed goes on where it was, and comes to the
verdict that it would have come to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from gates.contracts.verdict import Control, Decision, Verdict
from gates.judge.decide import decide, extensions, judge_control, same_lineage
from gates.judge.outcomes import Outcomes, Timing
from gates.judge.score import Scored, score
from gates.policy.values import METRICS
from gates.run.calibrate import calibrate
from gates.run.job_spec import AGAIN, BASELINE, CANDIDATE, CONTROL, Job
from gates.run.latency import Schedule, phases, prompts_needed
from gates.run.ledger import Ledger
from gates.run.plan import Ask
from gates.run.progress import Progress
from gates.run.readings import Reading, Shares, readings, timings, uncounted
from gates.run.request_plan import again, controls, first_stage, second_stage, speakers, speed_schedule
from gates.run.runner import PATIENT, Pace, run


@dataclass(frozen=True, slots=True)
class Judged:
    """A job's outcome: the decision and what it was made from."""

    decision: Decision
    scored: Scored
    readings: tuple[Reading, ...]


SPARE: Final = 1.5
"""So many more requests are timed than a rule needs: some replies are too short to have a decode rate."""

Track = Callable[[str], Progress | None]
"""A progress display for a part of the job, by its title."""


def _no_track(title: str) -> None:
    return None


async def run_job(job: Job, ledger: Ledger, *, track: Track = _no_track) -> Judged:
    """Ask whatever is not in the ledger yet, and judge.

    Raises:
        RunError: an engine is gone, the disk is full. SamplesError: the ledger is another run's.
    """
    work = _Work(job, ledger, track)
    await work.ask("named cases", first_stage(job, named=True))
    if job.full or not work.failed:
        await work.ask("first stage", first_stage(job))
    if not work.failed:
        if more := set(extensions(work.judged().decision)) - set(METRICS):
            await work.ask("extension", second_stage(job, more))
        await work.ask("controls", [*again(job), *controls(job)])
        if job.timed and job.policy.latency:
            await work.time()
    return work.judged()


class _Work:
    """One job in progress."""

    def __init__(self, job: Job, ledger: Ledger, track: Track) -> None:
        self._job = job
        self._ledger = ledger
        self._track = track
        self._scales: dict[str, float] = {}

    async def ask(self, title: str, asks: Sequence[Ask], pace: Pace | None = None) -> None:
        """Bring these samples into the ledger."""
        rules = self._job.policy.run
        targets = {arm: side.target for arm, side in self._job.sides.items()}
        pace = pace or Pace(concurrency=rules.concurrency, retries=rules.retries)
        await run(asks, targets, self._ledger, pace=pace, progress=self._track(title))

    async def time(self) -> None:
        """The latency part, and its one extension."""
        schedule = speed_schedule(self._job, await calibrate(self._job.baseline.target))
        await self._measure("latency", schedule)
        late = set(extensions(self.judged().decision)) & set(METRICS)
        if late:
            await self._measure("latency, once more", replace(schedule, first_block=schedule.blocks))

    async def _measure(self, title: str, schedule: Schedule) -> None:
        job = self._job
        n = max(rule.n for rule in job.policy.latency.values())
        many = math.ceil(SPARE * prompts_needed(n, schedule) / len(schedule.buckets))
        prompts = speakers(job.suite, self._ledger.samples())[:many]
        for asks in phases(job.suite.digest, job.timed_arms, prompts, job.suite.sampling, schedule):
            await self.ask(title, asks, PATIENT)

    @property
    def failed(self) -> bool:
        """Whether the candidate has failed, whatever else would be asked."""
        return self.judged().decision.verdict is Verdict.FAIL

    def judged(self) -> Judged:
        """What the ledger says now."""
        return judge(self._job, self._ledger)


def judge(job: Job, ledger: Ledger) -> Judged:
    """Score and decide from the samples alone."""
    tokens = {arm: side.tokens for arm, side in job.sides.items()}
    scored = score(job.policy, job.suite, ledger.samples(), tokens)
    shares = Shares(silent=job.policy.speed.cache_unsaid)
    taken = readings(ledger.samples(), shares=shares)
    lineage = same_lineage(job.candidate.artefact, job.baseline.artefact, job.known)
    outcomes = Outcomes(
        suite=job.suite,
        candidate=scored.results.get(CANDIDATE, ()),
        baseline=scored.results.get(BASELINE, ()),
        again=scored.results.get(AGAIN, ()),
        timings=_timings(job, taken),
        lineage=lineage,
        uncounted=uncounted(taken, CANDIDATE, job.policy.speed.regime),
    )
    held = tuple(_controls(job, scored))
    return Judged(decide(job.policy, outcomes, held), scored, taken)


def _timings(job: Job, taken: Iterable[Reading]) -> tuple[Timing, ...]:
    speed = job.policy.speed
    names: dict[str, Literal["candidate", "baseline"]] = {CANDIDATE: CANDIDATE, BASELINE: BASELINE}
    return timings(taken, names, regime=speed.regime, first_stage_blocks=speed.blocks)


def _controls(job: Job, scored: Scored) -> Iterator[Control]:
    """The negative controls that were asked, judged by the same policy as the candidate."""
    for control in job.policy.controls:
        results = scored.results.get(f"{CONTROL}{control.name}")
        if results:
            decision = decide(job.policy, Outcomes(suite=job.suite, candidate=results))
            yield judge_control(control.name, Verdict.FAIL, decision, control.breaks)
