"""Rows and rounds: what load each subject gets, in which order, and what is read off it."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep

from deploy.profiles.matrix import quantile
from tests.bench import machine
from tests.bench.load import Plan, Result
from tests.bench.processes import Process, listens
from tests.bench.script import OVERHEAD_CHUNKS
from tests.bench.subjects import SUBJECTS, Missing, Subject
from tests.ports import free_port

LOAD_SECONDS = 180.0
QUIET_CORES = 0.15
"""A sample is disturbed when others keep more than this busy. Each waits for a quiet moment, with
some patience, and while that lasts is taken again if it was disturbed all the same."""
TRIES = 3
WAIT_SECONDS = 10.0


@dataclass(frozen=True)
class Sample:
    """One row on one subject in one round. CPU per chunk in microseconds, times in milliseconds."""

    row: str
    subject: str
    round: int
    cpu_us: float
    ttft50: float
    ttft99: float
    gap99: float
    joined: float  # tokens per event that arrived: 1 unless a gateway joins some
    rss_mib: float
    wall: float
    others: float  # cores that the rest of the machine kept busy meanwhile


@dataclass(frozen=True)
class Row:
    """One kind of load."""

    name: str
    title: str
    concurrency: int
    streams: int  # per connection
    tokens: int
    paced: bool
    pause: float = 0.0
    whole: bool = False  # slow subjects run all of it too: its percentiles need the samples

    def plan(self, subject: Subject, seed: int, scale: float) -> Plan:
        """This row for a subject in a round."""
        share = scale if self.whole else scale * subject.share
        streams = max(2, round(self.streams * share))
        return Plan(subject.port, self.concurrency, streams, self.tokens, self.paced, self.pause, seed)


ROWS = (
    Row("paced-c16", "16 streams, 64 tokens 1 ms apart: the row that counts", 16, 20, 64, True, 0.008),
    Row("paced-c1", "1 stream, 64 tokens 1 ms apart", 1, 30, 64, True, 0.004),
    Row("first-c1", "1 stream, 4 tokens 1 ms apart: first tokens", 1, 250, 4, True, 0.003, whole=True),
    Row("unpaced-c16", "16 streams, 64 tokens at once", 16, 20, 64, False),
)


class Failed(Exception):
    """A load that did not go as it must: what was measured then would be about errors."""


@contextmanager
def engine(folder: Path) -> Iterator[int]:
    """The scripted engine, running; its port."""
    port = free_port()
    process = Process([sys.executable, "-m", "tests.bench.engine", str(port)], folder / "engine.log")
    try:
        while not listens(port):
            if process.died:
                raise Failed(f"the scripted engine {process.died}")
            sleep(0.05)
        yield port
    finally:
        process.stop()


@contextmanager
def started(names: Sequence[str], port: int, folder: Path) -> Iterator[tuple[list[Subject], dict[str, str]]]:
    """Those that run, and why the others do not."""
    running: list[Subject] = []
    missing: dict[str, str] = {}
    everyone = [SUBJECTS[name](port, folder) for name in names]
    try:
        for subject in everyone:
            try:
                subject.start()
                running.append(subject)
            except Missing as why:
                missing[subject.name] = str(why)
                subject.stop()
        yield running, missing
    finally:
        for subject in everyone:
            subject.stop()


def load(plan: Plan, around: Callable[[], float]) -> tuple[Result, float]:
    """Run a plan in a process of its own; also how much `around()` grew meanwhile. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        written = Path(folder) / "result.json"
        grown = _drive([sys.executable, "-m", "tests.bench.load", str(written)], plan, around)
        if not written.exists():
            raise Failed("the load client broke")
        result = Result(**json.loads(written.read_text()))
    if result.errors:
        raise Failed(f"{len(result.errors)} streams failed; the first: {result.errors[0]}")
    return result, grown


def _drive(command: list[str], plan: Plan, around: Callable[[], float]) -> float:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin
        assert child.stdout
        try:
            print(json.dumps(asdict(plan)), file=child.stdin, flush=True)
            if child.stdout.readline() != "ready\n":
                raise Failed("the load client could not connect")
            before = around()
            child.communicate("go\n", timeout=LOAD_SECONDS)
            return around() - before
        except subprocess.TimeoutExpired:
            raise Failed(f"no end within {LOAD_SECONDS:.0f} s") from None
        finally:
            child.kill()


def measure(subject: Subject, row: Row, number: int, scale: float) -> Sample:
    """One row on one subject in one round. Raises Failed."""
    process = subject.process
    plan = row.plan(subject, number, scale)
    others, began = machine.others_seconds(), monotonic()
    result, cpu = load(plan, process.cpu_seconds if process else lambda: 0.0)
    others = (machine.others_seconds() - others) / (monotonic() - began)
    chunks = result.streams * (row.tokens + OVERHEAD_CHUNKS)
    return Sample(
        row=row.name,
        subject=subject.name,
        round=number,
        cpu_us=cpu * 1e6 / chunks,
        ttft50=quantile(result.ttft, 0.50) or 0.0,
        ttft99=quantile(result.ttft, 0.99) or 0.0,
        gap99=quantile(result.gaps, 0.99) or 0.0,  # a short round may have no gap
        joined=result.streams * row.tokens / result.events,
        rss_mib=process.rss_mib() if process else 0.0,
        wall=result.wall,
        others=max(0.0, others),
    )


@dataclass
class Effort:
    """How much of it: rounds, a scale for the length of each load, and patience with others."""

    rounds: int
    scale: float
    patience: machine.Patience


def take(subject: Subject, row: Row, number: int, effort: Effort) -> Sample:
    """The least disturbed of a few tries, or the first that is quiet. Raises Failed."""
    tries: list[Sample] = []
    while len(tries) < TRIES:
        effort.patience.await_quiet(QUIET_CORES, WAIT_SECONDS)
        tries.append(measure(subject, row, number, effort.scale))
        if tries[-1].others <= QUIET_CORES or effort.patience.left <= 0:
            break
        effort.patience.left -= tries[-1].wall
    return min(tries, key=lambda sample: sample.others)


def run(
    subjects: list[Subject], rows: Sequence[Row], effort: Effort, tell: Callable[[str], None]
) -> tuple[list[Sample], dict[str, str]]:
    """Every row on every subject, interleaved, each round beginning with another subject."""
    samples: list[Sample] = []
    failed: dict[str, str] = {}
    for number, row, subject in _turns(subjects, rows, effort.rounds):
        if subject.name in failed:
            continue
        tell(f"round {number}/{effort.rounds}  {row.name}  {subject.title}")
        try:
            if number:
                samples.append(take(subject, row, number, effort))
            else:
                measure(subject, row, number, effort.scale / 4)
        except Failed as why:
            failed[subject.name] = f"{row.name}: {why}"
    return [sample for sample in samples if sample.subject not in failed], failed


def _turns(subjects: list[Subject], rows: Sequence[Row], rounds: int) -> Iterator[tuple[int, Row, Subject]]:
    for number in range(rounds + 1):  # round 0 warms up and is thrown away
        first = number % len(subjects) if subjects else 0
        for row in rows:
            for subject in subjects[first:] + subjects[:first]:
                yield number, row, subject
