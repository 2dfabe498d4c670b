"""Makes the planned requests and stores every sample; can be stopped at any time and resumed.

Transport faults are retried; a model's answer is never repeated. A lost sample is held back until its arm answers again: an engine
that is gone ends the run with a RunError instead of a series of lost samples.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gates.contracts.errors import RunError
from gates.contracts.sample import HEARD, Sample, TimedRead, TransportFault
from gates.reply.reply import quote, read_body
from gates.run.http import Attempt, RequestTimeouts, TimedClient
from gates.run.progress import RunCounts, RunProgress
from gates.run.request import PlannedRequest, encode_body, pending_requests
from gates.run.sample_store import SampleStore
from gates.run.target import Target

_RETRIED: Final = (408, 429)


def transport_fault(status: int | None, reads: Sequence[TimedRead]) -> TransportFault | None:
    """The transport fault of a reply that was read to its end, or None."""
    if status is None:
        return TransportFault("broken", "no answer came")
    body = b"".join(read.data for read in reads)
    if status >= 500 or status in _RETRIED:
        return TransportFault("status", f"HTTP {status}: {quote(body)}")
    if status != 200:
        return None  # the engine rejects the request; another attempt would not change that
    reply = read_body(reads)
    error, reason = reply.error, reply.finish_reason
    if error is not None and (error.status or 500) < 500:
        return None
    if error is not None and (reason is None or error.status):
        return TransportFault("broken", f"the engine broke off: {quote(error.message.encode())}")
    return TransportFault("broken", "the reply ended without a finish_reason") if reason is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How requests are made; at a concurrency of 1 replies at temperature 0 are reproducible. With `jobs`, so many requests are made at
    once, and `concurrency` of them to one engine; without, `concurrency` to all engines together. A fault is retried after 1, 4, 16 ... times
    `backoff_s`, or when the server says. `busy_retries`: for HTTP 429 and 529, if another number. After `patience` lost samples in
    a row the engine is considered gone.
    """

    concurrency: int = 1
    jobs: int = 1
    retries: int = 2
    busy_retries: int | None = None
    backoff_s: float = 1.0
    patience: int = 5
    timeouts: RequestTimeouts = RequestTimeouts()


LATENCY_PACE: Final = Pace(retries=0)
"""The pace of the latency part: one request at a time, without retries."""

_BUSY: Final = (429, 529)
LONGEST_WAIT: Final = 60.0
"""The longest pause before a retry, in seconds, even if the server asks for a longer one."""


async def run(
    requests: Iterable[PlannedRequest],
    targets: Mapping[str, Target],
    store: SampleStore,
    *,
    pace: Pace = Pace(),
    progress: RunProgress | None = None,
    later: int = 0,
) -> RunCounts:
    """Make every request that is not in the store yet. When cancelled, finished samples are in the store. Raises RunError: an engine is
    gone or rejects all requests, or the disk is full. `later`: requests that are known to follow in other calls, for the time left.
    """
    requests = tuple(requests)
    todo = pending_requests(requests, store)
    planned, new = sum(a.recorded for a in requests), sum(a.recorded for a in todo)
    tally = RunCounts(planned, planned - new)
    if progress:
        progress.start(tally.planned, tally.present, later)
    try:
        await _Run(targets, pace, store, tally, progress).all(todo)
    finally:
        if progress:
            progress.stop()
    return tally


@dataclass
class _Run:
    """One run: workers that take requests from an iterator, which all engines share, or each has for itself."""

    _targets: Mapping[str, Target]
    _pace: Pace
    _store: SampleStore
    _tally: RunCounts
    _progress: RunProgress | None
    _held: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    """By arm: those that were lost since its last answer."""

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self._pace.concurrency if self._pace.jobs == 1 else self._pace.jobs)
        self._client = TimedClient(self._pace.timeouts)

    async def all(self, todo: Iterable[PlannedRequest]) -> None:
        """Work until no request is left."""
        queues: dict[str, list[PlannedRequest]] = defaultdict(list)
        for planned in todo:
            queues["" if self._pace.jobs == 1 else self._targets[planned.key.arm].url].append(planned)
        try:
            async with asyncio.TaskGroup() as workers:
                for requests in map(iter, queues.values()):
                    for _ in range(self._pace.concurrency):
                        workers.create_task(self._work(requests))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first one; the others were stopped by it
        self._keep([sample for held in self._held.values() for sample in held])

    async def _work(self, requests: Iterator[PlannedRequest]) -> None:
        for planned in requests:
            async with self._free:
                target = self._targets[planned.key.arm]
                if planned.before is not None:
                    await self._client.ask(target, encode_body(planned.before))
                await asyncio.sleep(planned.wait_s)
                self._settle(planned, await self._take(planned, target), target)

    async def _take(self, planned: PlannedRequest, target: Target) -> Sample:
        """The sample of a request, after as many attempts as needed and allowed."""
        body, retries = encode_body(planned.request), list[TransportFault]()
        while True:
            attempt = await self._client.ask(target, body)
            _raise_for_config_error(attempt, target)
            attempt.fault = attempt.fault or transport_fault(attempt.status, attempt.reads)
            busy = self._pace.busy_retries if attempt.status in _BUSY else None
            if attempt.fault is None or len(retries) >= (self._pace.retries if busy is None else busy):
                hearing = target.hearing if planned.key.arm in HEARD else None
                return attempt.sample(planned.key, planned.request, hearing, *retries)
            backoff = self._pace.backoff_s * 4 ** len(retries)
            await asyncio.sleep(min(LONGEST_WAIT, max(backoff, attempt.retry_after)))
            retries.append(attempt.fault)

    def _settle(self, planned: PlannedRequest, sample: Sample, target: Target) -> None:
        """Store a sample, or hold it back while its engine may be gone."""
        at = f"{planned.key.arm}: {target.url}"
        if not planned.recorded:
            if sample.fault or (sample.status or 0) >= 400:
                raise RunError(f"{at} could not be warmed up: {_describe_failure(sample)}")
            return
        held = self._held[sample.key.arm]
        held.append(sample)
        if sample.fault is None:
            del self._held[sample.key.arm]
            self._keep(held)
        elif len(held) >= self._pace.patience:
            raise RunError(
                f"{at} failed {len(held)} times in a row, at last with "
                f"{_describe_failure(sample)}; see to the engine and run again: what was answered is kept"
            )

    def _keep(self, samples: list[Sample]) -> None:
        """Write samples to the disk, at once: where requests are timed, none is under way meanwhile."""
        if samples:
            self._store.append(samples)
        for sample in samples:
            self._tally.add(sample)
            if self._progress:
                self._progress.sample(sample)


def _raise_for_config_error(attempt: Attempt, target: Target) -> None:
    """Raise RunError for errors that no prompt can change. A body that may quote the key is not shown."""
    if attempt.status in (401, 403):
        raise RunError(f"{target.url} wants another API key (HTTP {attempt.status})")
    if attempt.status == 404:
        text = quote(b"".join(read.data for read in attempt.reads))
        raise RunError(f"{target.url} does not serve {target.served_model!r} (HTTP 404: {text})")


def _describe_failure(sample: Sample) -> str:
    if sample.fault:
        return f"{sample.fault.kind} ({sample.fault.detail})"
    return f"HTTP {sample.status}: {quote(b''.join(read.data for read in sample.reads))}"
