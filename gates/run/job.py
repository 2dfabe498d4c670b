"""Runs a gate job: both arms' named cases and the rest of stage 1, and the extension, or all in random order until it is decided; then
A/A and negative controls, and latency.

All samples are in the store: a job that was killed continues where it stopped and reaches the same verdict.
"""

import gc
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from gates.artefact.manifest import Lineage, same_lineage
from gates.contracts.case import Suite
from gates.contracts.metric import METRICS
from gates.contracts.sample import AGAIN, BASELINE, CANDIDATE, CONTROL_PREFIX, Sample
from gates.contracts.verdict import ControlResult, Decision, Verdict
from gates.judge.context import Measurements
from gates.judge.decide import decide, extensions, judge_control
from gates.judge.rulings import Rulings, judge_agreement
from gates.judge.score import ScoredSamples, score
from gates.judge.sequential import undecided_cases
from gates.policy.policy import Policy
from gates.run.calibrate import calibrate
from gates.run.gate_job import GateJob
from gates.run.latency_readings import LatencyReading, latency_readings, timings, void_summary
from gates.run.latency_schedule import Schedule, latency_requests, prompts_needed
from gates.run.progress import Display
from gates.run.request import PlannedRequest
from gates.run.request_plan import (
    control_requests,
    latency_prompts,
    latency_schedule,
    self_comparison_requests,
    stage_requests,
)
from gates.run.rulings import FILE as RULINGS
from gates.run.runner import LATENCY_PACE, Pace, run
from gates.run.sample_store import SampleStore
from gates.suite.draw import in_random_order


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job's decision and the data behind it."""

    decision: Decision
    scored: ScoredSamples


LOOK: Final = 8
"""The prompts of a sequential run between two looks, at the least."""
LATENCY_SURPLUS: Final = 1.5
"""How many times more requests are timed than a rule needs: some replies are too short for a decode rate."""

ProgressFactory = Callable[[str], Display | None]
"""Makes a progress display for a part of the job, by its title."""


def _no_progress(title: str) -> None:
    return None


async def run_job(job: GateJob, store: SampleStore, *, track: ProgressFactory = _no_progress) -> JobResult:
    """Send the requests that are not in the store yet, and judge. Raises RunError: no answer, or a full disk; SamplesError: another run."""
    if job.sequential:
        job = replace(job, suite=in_random_order(job.suite, job.order))
    runner = _JobRunner(job, store, track)
    checks = (*self_comparison_requests(job), *control_requests(job))
    if job.sequential:
        await runner.ask_in_turn(checks)
    else:
        stage, named = stage_requests(job), [case for case in job.suite.cases if case.named]
        await runner.ask("named cases", stage_requests(job, named), then=(*stage, *checks))
        if job.full or not runner.failed:
            await runner.ask("first stage", stage, then=checks)
        if more := set(extensions(runner.judged().decision)) - set(METRICS):
            await runner.ask("extension", stage_requests(job, stage=2, gates=more), then=checks)
    if not runner.failed:
        await runner.ask("controls", checks)
        if job.timed and job.policy.latency:
            await runner.time()
    return runner.judged()


@dataclass
class _JobRunner:
    """One job in progress."""

    _job: GateJob
    _store: SampleStore
    _track: ProgressFactory
    _judged: tuple[int, JobResult] | None = None

    async def ask_in_turn(self, checks: Iterable[PlannedRequest]) -> None:
        """The cases in the suite's order until every rule is decided, with a look after every LOOK, later after every eighth part."""
        asked: set[str] = set()
        while wanted := undecided_cases(self.judged().decision, self._job.suite, asked):
            some = wanted[: max(LOOK, len(asked) // 8)]
            asked.update(case.id for case in some)
            await self.ask(f"to prompt {len(asked)}", stage_requests(self._job, some), then=checks)

    async def ask(
        self,
        title: str,
        requests: Sequence[PlannedRequest],
        pace: Pace | None = None,
        then: Iterable[PlannedRequest] = (),
    ) -> None:
        """Ask these requests and store their samples. `then`: what is asked later, for the time left."""
        rules = self._job.policy.run
        targets = {arm: side.target for arm, side in self._job.served_models.items()}
        pace = pace or Pace(concurrency=rules.concurrency, retries=rules.retries, jobs=self._job.jobs)
        later = {one.key for one in then if one.key not in self._store} - {one.key for one in requests}
        await run(requests, targets, self._store, pace=pace, progress=self._track(title), later=len(later))
        await self._job.outside.ask(self._store.samples(), self._store.path.with_name(RULINGS))

    async def time(self) -> None:
        """Measure latency, with one extension if a rule needs it."""
        gc.collect()
        gc.freeze()  # a pause for objects that exist already would look like latency
        schedule = latency_schedule(self._job, await calibrate(self._job.baseline.target))
        await self._measure("latency", schedule)
        extended_metrics = set(extensions(self.judged().decision)) & set(METRICS)
        if extended_metrics:
            await self._measure("latency, once more", replace(schedule, first_block=schedule.blocks))

    async def _measure(self, title: str, schedule: Schedule) -> None:
        job = self._job
        n = max(rule.n for rule in job.policy.latency.values())
        many = math.ceil(LATENCY_SURPLUS * prompts_needed(n, schedule) / len(schedule.buckets))
        prompts = latency_prompts(job.suite, self._store.samples())[:many]
        requests = latency_requests(job.suite.digest, job.timed_arms, prompts, job.suite.sampling, schedule)
        await self.ask(title, requests, LATENCY_PACE)

    @property
    def failed(self) -> bool:
        """Whether the candidate has failed, so that further requests would change nothing."""
        return self.judged().decision.verdict is Verdict.FAIL

    def judged(self) -> JobResult:
        """The result of the samples so far, cached until a sample or a ruling comes."""
        known = len(self._store) + len(self._job.outside.rulings)
        if self._judged is None or self._judged[0] != known:
            self._judged = known, judge(self._job, self._store)
        return self._judged[1]


def judge(job: GateJob, store: SampleStore) -> JobResult:
    """Score and decide from the samples alone."""
    tokens = {arm: side.tokens for arm, side in job.served_models.items()}
    lineage = same_lineage(job.candidate.artefact, job.baseline.artefact, job.known)
    rulings = job.outside.rulings
    return judge_samples(job.policy, job.suite, store.samples(), lineage, tokens, job.order, rulings)


def judge_samples(
    policy: Policy,
    suite: Suite,
    stored: Iterable[Sample],
    lineage: Lineage,
    tokens: Mapping[str, Collection[str]] | None = None,
    order: str = "",
    rulings: Rulings = MappingProxyType({}),
) -> JobResult:
    """Score and decide from samples, which are read once. `tokens`: special tokens by arm, which leaks are looked for, too. `order`:
    the seed of a sequential run.
    """
    speed, suite = policy.speed, in_random_order(suite, order) if order else suite
    found: list[LatencyReading] = []

    def samples() -> Iterator[Sample]:
        for sample in stored:
            found.extend(latency_readings((sample,), cache_unsaid=speed.cache_unsaid))
            yield sample

    scored = score(policy, suite, samples(), tokens, rulings)
    readings = tuple(found)
    measurements = Measurements(
        suite=suite,
        candidate=scored.results.get(CANDIDATE, ()),
        baseline=scored.results.get(BASELINE, ()),
        again=scored.results.get(AGAIN, ()),
        timings=tuple(timings(readings, first_stage_blocks=speed.blocks)),
        lineage=lineage,
        uncounted=void_summary(readings, CANDIDATE),
        sequential=bool(order),
    )
    control_results = tuple(_controls(policy, measurements, scored))
    if agreement := judge_agreement(suite, rulings, policy.confidence):
        control_results += (agreement,)
    return JobResult(decide(policy, measurements, control_results), scored)


def _controls(policy: Policy, measured: Measurements, scored: ScoredSamples) -> Iterator[ControlResult]:
    """The negative controls that were asked, judged by the candidate's policy."""
    for control in policy.controls:
        results = scored.results.get(f"{CONTROL_PREFIX}{control.name}")
        if results:
            alone = Measurements(suite=measured.suite, candidate=results, sequential=measured.sequential)
            decision = decide(policy, alone)
            yield judge_control(control.name, Verdict.FAIL, decision, control.breaks)
