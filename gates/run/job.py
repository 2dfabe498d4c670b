"""A gate job: what is judged, against what, by which policy; the requests of its parts; and their order: both arms' named cases and the
rest of stage 1, and the extension, or all in random order until it is decided; then A/A and negative controls, and latency.

All samples are in the store: a job that was killed continues where it stopped and reaches the same verdict.
"""

import gc
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gates.artefact.artefact import Artefact, Lineage, ModelIdentity, Snapshot, same_lineage, snapshot
from gates.contracts.case import Case, Suite, in_random_order, order_seed
from gates.contracts.errors import RunError
from gates.contracts.numerics import Numerics
from gates.contracts.sample import AGAIN, BASELINE, CANDIDATE, CONTROL_PREFIX, LATENCY_PREFIX, Sample
from gates.contracts.verdict import METRICS, ControlResult, Decision, Verdict
from gates.judge.context import Measurements
from gates.judge.decide import decide, extensions, judge_control
from gates.judge.score import Rulings, ScoredSamples, judge_agreement, score
from gates.judge.sequential import undecided_cases
from gates.policy.policy import SELF_COMPARISON, Policy
from gates.reply.reply import read_reply
from gates.report.statement import EngineIdentity
from gates.run.calibrate import calibrate
from gates.run.conversation import buckets_within
from gates.run.latency import (
    LatencyReading,
    Schedule,
    latency_readings,
    latency_requests,
    timings,
    void_summary,
)
from gates.run.progress import Display
from gates.run.request import PlannedRequest, plan_requests
from gates.run.rulings import FILE as RULINGS
from gates.run.rulings import OutsideChecks
from gates.run.runner import LATENCY_PACE, Pace, run
from gates.run.sample_store import SampleStore
from gates.run.target import Arm, Target, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A running engine and its model. `context` in tokens; `tokens` are the special ones; `files` as before they were hashed."""

    target: Target
    artefact: Artefact
    engine: EngineIdentity
    numerics: Numerics | None = None
    reply_format: str = ""
    tokens: frozenset[str] = frozenset()
    context: int = 4096
    files: Snapshot = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateJob:
    """What is judged. `controls`: model and variant by name. `known`: artefacts for lineage. `timed`: with latency. `full`: all of stage 1
    even after a failure. `sequential`: in random order, and only until it is decided. `gateway`: the model's configuration by which the targets hear; {} if they do not. `jobs`: how many
    requests at once, to different engines. `outside`: what asks an author's functions and judge models.
    """

    suite: Suite
    policy: Policy
    candidate: ServedModel
    baseline: ServedModel
    controls: Mapping[str, tuple[ServedModel, Variant]] = field(default_factory=dict)
    known: tuple[ModelIdentity, ...] = ()
    timed: bool = True
    full: bool = False
    gateway: Mapping[str, str] = field(default_factory=dict)
    jobs: int = 1
    sequential: bool = False
    outside: OutsideChecks = field(default_factory=OutsideChecks)

    def __post_init__(self) -> None:
        """Raises RunError if a control of the policy has no engine."""
        wanted = {control.name for control in self.policy.controls}
        if missing := wanted - self.controls.keys():
            raise RunError(
                f"policy {self.policy.name} wants the control {', '.join(sorted(missing))}; name its engine"
            )

    @property
    def order(self) -> str:
        """The seed of a sequential run's order; "" for a run of fixed size."""
        return order_seed(self.suite.digest, self.candidate.artefact.root) if self.sequential else ""

    @property
    def sides(self) -> dict[str, tuple[ServedModel, Variant]]:
        """The model of every arm, by the arm's name, and how it is asked."""
        production = Variant(system_suffix=self.policy.run.system)
        both = {CANDIDATE: (self.candidate, production), BASELINE: (self.baseline, production)}
        controls = {f"{CONTROL_PREFIX}{one.name}": self.controls[one.name] for one in self.policy.controls}
        timed = {f"{LATENCY_PREFIX}{arm}": side for arm, side in both.items()}
        return {**both, AGAIN: both[BASELINE], **controls, **timed}

    @property
    def served_models(self) -> dict[str, ServedModel]:
        """The served model of every arm."""
        return {arm: side for arm, (side, _) in self.sides.items()}

    def arms(self, *names: str) -> list[Arm]:
        """The arms of these names."""
        return [Arm(name, side.target, variant) for name in names for side, variant in [self.sides[name]]]


def stage_requests(
    job: GateJob, cases: Iterable[Case] | None = None, *, stage: int = 1, gates: Collection[str] | None = None
) -> tuple[PlannedRequest, ...]:
    """A stage of both arms, case by case, with every repeat that a gate counts; only these cases, or of these gates, if given."""
    suite = job.suite if cases is None else replace(job.suite, cases=tuple(cases))
    gates = job.policy.gates if gates is None else gates
    return plan_requests(suite, job.arms(CANDIDATE, BASELINE), policy=job.policy, stage=stage, gates=gates)


def check_requests(job: GateJob) -> tuple[PlannedRequest, ...]:
    """What tests the gate itself, at temperature 0: the baseline once more (A/A), on the first cases of every comparative gate (a
    sequential run may lack the first time), and every negative control, on the gates that it has to fail.
    """
    n, made = job.policy.same.n, list[PlannedRequest]()
    parts: list[tuple[list[str], Collection[str], Collection[str], int | None]] = [
        ([f"{CONTROL_PREFIX}{one.name}"], one.breaks, one.breaks, n if job.sequential else None)
        for one in job.policy.controls
    ]
    if SELF_COMPARISON in job.policy.required_controls:
        compared = [name for name, rules in job.policy.gates.items() if rules.compare]
        parts.insert(0, ([BASELINE, AGAIN] if job.sequential else [AGAIN], compared, job.policy.gates, n))
    for arms, of, gates, most in parts:
        chosen = {case.id: case for gate in of for case in job.suite.of(gate, 1)[:most]}
        suite = replace(job.suite, cases=tuple(chosen.values()))
        made += plan_requests(suite, job.arms(*arms), policy=job.policy, gates=gates, greedy=True)
    return tuple(made)


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
    speed, room = job.policy.speed, min(job.candidate.context, job.baseline.context)
    buckets = buckets_within(room, Schedule().max_tokens, speed.buckets)
    if not buckets:
        raise RunError(f"no prompt length of the policy fits a context of {room} tokens; set smaller buckets")
    pause = speed.pause[0], speed.pause[1]
    return Schedule(buckets=buckets, blocks=speed.blocks, pause_s=pause, chars_per_token=chars_per_token)


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


async def run_job(job: GateJob, store: SampleStore, *, track: ProgressFactory = lambda _: None) -> JobResult:
    """Send the requests that are not in the store yet, and judge. Raises RunError: no answer, or a full disk; SamplesError: another run."""
    if job.sequential:
        job = replace(job, suite=in_random_order(job.suite, job.order))
    runner, checks = _JobRunner(job, store, track), check_requests(job)
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
        if set(extensions(self.judged().decision)) & set(METRICS):
            await self._measure("latency, once more", replace(schedule, first_block=schedule.blocks))

    async def _measure(self, title: str, schedule: Schedule) -> None:
        suite = self._job.suite
        wanted = LATENCY_SURPLUS * max(rule.n for rule in self._job.policy.latency.values())
        many = math.ceil(wanted / (2 * schedule.blocks) / len(schedule.buckets))
        prompts = latency_prompts(suite, self._store.samples())[:many]
        arms = self._job.arms(f"{LATENCY_PREFIX}{CANDIDATE}", f"{LATENCY_PREFIX}{BASELINE}")
        await self.ask(
            title, latency_requests(suite.digest, arms, prompts, suite.sampling, schedule), LATENCY_PACE
        )

    @property
    def failed(self) -> bool:
        """Whether the candidate has failed, so that further requests would change nothing."""
        return self.judged().decision.verdict is Verdict.FAIL

    def judged(self) -> JobResult:
        """The result of the samples so far, cached until a sample or a ruling comes."""
        job, known = self._job, len(self._store) + len(self._job.outside.rulings)
        if self._judged is None or self._judged[0] != known:
            tokens = {arm: side.tokens for arm, side in job.served_models.items()}
            ours, theirs = job.candidate.artefact.identity, job.baseline.artefact.identity
            lineage = same_lineage(ours, theirs, job.known)
            asked = job.policy, job.suite, self._store.samples()
            found = judge_samples(*asked, lineage, tokens, job.order, job.outside.rulings)
            self._judged = known, found
        return self._judged[1]


def judge_samples(
    policy: Policy,
    suite: Suite,
    stored: Iterable[Sample],
    lineage: Lineage,
    tokens: Mapping[str, Collection[str]] | None = None,
    order: str = "",
    rulings: Rulings = MappingProxyType({}),
) -> JobResult:
    """Score and decide from samples, read once. `tokens`: special tokens by arm, which may not leak. `order`: the seed of a sequential run."""
    speed, suite = policy.speed, in_random_order(suite, order) if order else suite
    readings: list[LatencyReading] = []

    def samples() -> Iterator[Sample]:
        for sample in stored:
            readings.extend(latency_readings((sample,), cache_unsaid=speed.cache_unsaid))
            yield sample

    scored = score(policy, suite, samples(), tokens, rulings)
    measured = Measurements(
        suite=suite,
        candidate=scored.results.get(CANDIDATE, ()),
        baseline=scored.results.get(BASELINE, ()),
        again=scored.results.get(AGAIN, ()),
        timings=tuple(timings(readings, first_stage_blocks=speed.blocks)),
        lineage=lineage,
        uncounted=void_summary(readings, CANDIDATE),
        sequential=bool(order),
    )
    controls = list[ControlResult]()
    for control in policy.controls:
        if results := scored.results.get(f"{CONTROL_PREFIX}{control.name}"):
            alone = Measurements(suite=suite, candidate=results, sequential=bool(order))
            controls.append(judge_control(control.name, decide(policy, alone), control.breaks))
    if agreement := judge_agreement(suite, rulings, policy.confidence):
        controls.append(agreement)
    return JobResult(decide(policy, measured, controls), scored)


HELD: Final = "weights.json"
_ANEW: Final = "nothing of it can be signed: run the gate in a folder of its own (--out DIR)"


def check_held(folder: Path, models: Iterable[ServedModel]) -> None:
    """Keep the metadata of the artefacts' files in the run's folder. Raises RunError: they have changed since they were hashed, or it cannot."""
    path, changed = folder / HELD, list[str]()
    try:
        kept = json.loads(path.read_bytes()) if path.exists() else {}
        for model in models:
            hashed = [list(entry) for entry in model.files]
            now = [list(entry) for entry in snapshot(Path(model.files[0][0]))] if hashed else []
            if not kept.setdefault(model.artefact.root, hashed) == hashed == now:
                changed.append(f"{model.artefact.name} ({model.artefact.root:.19})")
        path.write_text(json.dumps(kept), "utf-8")
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{path}: cannot be used ({error}); {_ANEW}") from None
    if changed:
        raise RunError(f"files of {changed[0]} were written to or exchanged since this run began; {_ANEW}")
