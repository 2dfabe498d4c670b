"""Asks what was planned and brings every sample to the ledger; stopped at any time, it resumes.

Faults of transport are tried again and kept in the sample; a model's answer is taken as it is. A
sample that stays lost is held back until its arm answers again: an engine that is gone ends the
run with a RunError and without a row of losses, and what it did not answer is asked when it is back.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gates.contracts.errors import RunError
from gates.contracts.sample import Fault, Sample
from gates.reply.reader import shown
from gates.run.faults import transport_fault
from gates.run.http import Attempt, Timeouts, Wire
from gates.run.ledger import Ledger
from gates.run.plan import Ask, pending
from gates.run.progress import Progress
from gates.run.request import encoded
from gates.run.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a run asks. At a concurrency of 1 an answer at temperature 0 is the same every time.

    A fault is tried again `retries` times, after 1, 4, 16 ... times `backoff_s` seconds; after
    `patience` lost samples in a row the arm's engine is taken for gone.
    """

    concurrency: int = 1
    retries: int = 2
    backoff_s: float = 1.0
    patience: int = 5
    timeouts: Timeouts = Timeouts()


PATIENT: Final = Pace(retries=0)
"""The latency gate's pace: one request at a time, and one that failed has failed."""


@dataclass(slots=True)
class Tally:
    """What a run did: of `planned` samples `present` were on file before, `asked` are new ones."""

    planned: int = 0
    present: int = 0
    asked: int = 0
    lost: int = 0
    retried: int = 0


async def run(
    asks: Iterable[Ask],
    targets: Mapping[str, Target],
    ledger: Ledger,
    *,
    pace: Pace = Pace(),
    progress: Progress | None = None,
) -> Tally:
    """Ask everything that the ledger does not hold yet. `targets` maps the asks' arms.

    When it is cancelled, what was answered is in the ledger, and what is under way is given up.

    Raises:
        RunError: an engine is gone or refuses to be asked, or the disk is full.
    """
    asks = tuple(asks)
    if strangers := {a.key.arm for a in asks} - targets.keys():
        raise RunError(f"no engine is given for {', '.join(sorted(strangers))}")
    if pace.concurrency > 1 and any(a.wait_s or a.before is not None for a in asks):
        raise RunError("requests with a pause before them are made one at a time; set concurrency to 1")
    todo = pending(asks, ledger)
    planned, new = sum(a.recorded for a in asks), sum(a.recorded for a in todo)
    tally = Tally(planned, planned - new)
    if progress:
        progress.start(tally.planned, tally.present)
    try:
        with _still_memory(), _Scribe(ledger) as scribe:
            async with Wire(pace.timeouts) as wire:
                await _Run(todo, targets, pace, wire, scribe, tally, progress).all()
    finally:
        if progress:
            progress.stop()
    return tally


class _Run:
    """One run: workers that take asks from one iterator."""

    def __init__(
        self,
        todo: Iterable[Ask],
        targets: Mapping[str, Target],
        pace: Pace,
        wire: Wire,
        scribe: _Scribe,
        tally: Tally,
        progress: Progress | None,
    ) -> None:
        self._todo, self._targets, self._pace = iter(todo), targets, pace
        self._wire, self._scribe, self._tally, self._progress = wire, scribe, tally, progress
        self._held: dict[str, list[Sample]] = {}  # by arm: lost since its last answer

    async def all(self) -> None:
        """Until nothing is left."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._pace.concurrency):
                    workers.create_task(self._work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first one; the others were stopped by it
        await self._keep([sample for held in self._held.values() for sample in held])

    async def _work(self) -> None:
        for ask in self._todo:
            target = self._targets[ask.key.arm]
            if ask.before is not None:
                await self._wire.ask(target, encoded(ask.before))
            await asyncio.sleep(ask.wait_s)
            sample = await self._take(ask, target)
            if ask.recorded:
                await self._settle(sample, target)
            elif sample.fault or (sample.status or 0) >= 400:
                raise RunError(f"{ask.key.arm}: {target.url} could not be warmed up: {_what(sample)}")

    async def _take(self, ask: Ask, target: Target) -> Sample:
        """The sample of an ask, after as many tries as it takes and is allowed."""
        body, retries = encoded(ask.request), list[Fault]()
        while True:
            attempt = await self._wire.ask(target, body)
            _refuse(attempt, target)
            fault = attempt.fault or transport_fault(attempt.status, attempt.reads)
            if fault is None or len(retries) >= self._pace.retries:
                break
            await asyncio.sleep(self._pace.backoff_s * 4 ** len(retries))
            retries.append(fault)
        return Sample(
            key=ask.key,
            request=ask.request,
            started=attempt.started,
            status=attempt.status,
            headers_ns=attempt.headers_ns,
            reads=tuple(attempt.reads),
            ended_ns=attempt.ended_ns,
            fault=fault,
            retries=tuple(retries),
        )

    async def _settle(self, sample: Sample, target: Target) -> None:
        """Keep a sample, or hold it back while its engine may be gone."""
        held = self._held.setdefault(sample.key.arm, [])
        held.append(sample)
        if sample.fault is None:
            self._held[sample.key.arm] = []
            await self._keep(held)
        elif len(held) >= self._pace.patience:
            raise RunError(
                f"{sample.key.arm}: {target.url} failed {len(held)} times in a row, at last with "
                f"{_what(sample)}; see to the engine and run again: what was answered is kept"
            )

    async def _keep(self, samples: list[Sample]) -> None:
        if not samples:
            return
        await self._scribe.write(samples)
        for sample in samples:
            self._tally.asked += 1
            self._tally.lost += sample.fault is not None
            self._tally.retried += bool(sample.retries)
            if self._progress:
                self._progress.sample(sample)


class _Scribe:
    """Writes to the ledger in a thread: samples that wait together get one fsync."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: deque[Sample] = deque()
        self._thread = ThreadPoolExecutor(1, "ledger")

    def __enter__(self) -> _Scribe:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        self._flush()  # what a cancelled task gave up waiting for

    async def write(self, samples: Iterable[Sample]) -> None:
        """Returns when they are on the disk."""
        self._waiting.extend(samples)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._flush)

    def _flush(self) -> None:
        batch = []
        while self._waiting:
            batch.append(self._waiting.popleft())
        if batch:
            self._ledger.append(batch)


@contextmanager
def _still_memory() -> Iterator[None]:
    """What is in memory now is out of the collector's sight: a pause of it would look like latency."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _refuse(attempt: Attempt, target: Target) -> None:
    """Raises RunError for what no prompt can change. A body that may quote the key is not shown."""
    if attempt.status in (401, 403):
        raise RunError(f"{target.url} wants another API key (HTTP {attempt.status})")
    if attempt.status == 404:
        told = shown(b"".join(read.data for read in attempt.reads))
        raise RunError(f"{target.url} does not serve {target.served_model!r} (HTTP 404: {told})")


def _what(sample: Sample) -> str:
    if sample.fault:
        return f"{sample.fault.kind} ({sample.fault.detail})"
    return f"HTTP {sample.status}: {shown(b''.join(read.data for read in sample.reads))}"
