"""Asks the sets beside the gates, within a time, and judges what was answered.

Samples are in a file of their own for each set, `also-NAME.jsonl`; what is there is not asked again. Whatever happens here
is said in the report and changes no verdict: the time may run out, and an engine may be gone.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from gates.beside.judge import losses, outcomes, tallies
from gates.beside.sets import BesideSet
from gates.contracts.errors import RunError
from gates.contracts.sample import BASELINE, CANDIDATE
from gates.report.statement import BesideResult, beside_file
from gates.run.gate_job import GateJob
from gates.run.job import ProgressFactory
from gates.run.planned_request import planned_request
from gates.run.runner import Pace, run
from gates.run.sample_store import Identity, SampleStore
from gates.run.target import Arm


async def ask_beside(
    job: GateJob,
    sets: Iterable[BesideSet],
    folder: Path,
    arms: Mapping[str, Identity],
    *,
    limit: int,
    seconds: float,
    track: ProgressFactory,
) -> tuple[BesideResult, ...]:
    """Ask candidate and baseline the same cases, without a system prompt, once, at temperature 0.

    limit: cases of each set at most; 0 is all. seconds: for all sets together. Raises SamplesError: a file of samples is
    another run's.
    """
    ends = asyncio.get_running_loop().time() + seconds
    return tuple([await _ask(job, one, folder, arms, limit, ends, track) for one in sets])


async def _ask(
    job: GateJob,
    asked: BesideSet,
    folder: Path,
    arms: Mapping[str, Identity],
    limit: int,
    ends: float,
    track: ProgressFactory,
) -> BesideResult:
    cases, rules, note = asked.first(limit), job.policy.run, ""
    targets = {CANDIDATE: job.candidate.target, BASELINE: job.baseline.target}
    requests = [
        planned_request(asked.digest, Arm(arm, target), case, asked.sampling, 0)
        for case in cases
        for arm, target in targets.items()
    ]
    path = folder / beside_file(asked.name)
    with SampleStore(path, suite=asked.digest, arms=arms) as store:
        pace = Pace(concurrency=rules.concurrency, retries=rules.retries)
        try:
            async with asyncio.timeout_at(ends):
                await run(requests, targets, store, pace=pace, progress=track(f"beside: {asked.name}"))
        except TimeoutError:
            note = "the time was up; run the same command again to go on"
        except RunError as error:
            note = f"stopped: {error}"
        found = outcomes(cases, store.samples())
    return BesideResult(
        name=asked.name,
        source=asked.source,
        digest=asked.digest,
        cases=len(cases),
        skipped=asked.skipped,
        samples=f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
        tallies=tallies(cases, found),
        losses=losses(found),
        note=note,
    )
