"""Generate conversations: ask a teacher model as the plan says, record every answer, and write those that are fit.

The output folder:

    ledger.jsonl            every answer, flushed to disk before it is used; a killed run continues from here
    conversations.jsonl     the rows, for `manners quantize … --data`
    manifest.json           what the rows are and where they come from; written last
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from gates.contracts.case import Suite
from gates.contracts.dialect import Dialect
from gates.contracts.errors import RunError
from gates.contracts.sample import Sample
from gates.reply.reply import read_reply
from gates.run.progress import LINE_SECONDS, RunCounts, in_minutes
from gates.run.runner import Pace, run
from gates.run.sample_store import SampleStore
from gates.run.target import Arm, Target, Variant
from gates.suite.contamination import ContaminationCheck
from quantizer.core.errors import DataError, ExportError, RecipeError, UnavailableError
from quantizer.data.collector import ARM, DataCollector
from quantizer.data.conversation import file_digest
from quantizer.data.plan import DataPlan

SCHEMA: Final = "manners/data/v1"
LEDGER: Final = "ledger.jsonl"
ROWS: Final = "conversations.jsonl"
GENERATOR: Final = 1
"""The version of what turns a plan into scripts: raised whenever the same plan gives other conversations."""
MANIFEST: Final = "manifest.json"
ROUND: Final = 8
"""Requests prepared at a time, as a multiple of the concurrency."""


@dataclass(frozen=True, slots=True)
class TeacherServer:
    """A server with OpenAI's chat completions, and the tokens that it may think before each answer; 0: thinking is off."""

    target: Target
    thinking: int = 0


def make_teacher(url: str, model: str, dialect: Dialect, key: str = "", thinking: int = 0) -> TeacherServer:
    """A teacher, identified by its model name and whether it thinks, not by its address. Raises RunError, RecipeError."""
    if thinking and dialect == "openai":
        raise RecipeError(f"--thinking: the dialect {dialect} has no switch for it; name another --dialect")
    named = f"{model} thinking" if thinking else model
    name = f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"
    headers = {"authorization": f"Bearer {key}"} if key else {}
    base = url.rstrip("/").removesuffix("/v1")
    return TeacherServer(
        Target(url=base, served_model=model, dialect=dialect, artefact=name, engine=name, headers=headers),
        thinking,
    )


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """What to generate: numbers of conversations by category of a plan, the teacher, and the suites to stay clear of."""

    plan: DataPlan
    counts: Mapping[str, int]
    teacher: TeacherServer
    suites: Sequence[Suite]
    pace: Pace = Pace()


def generate(job: GenerationJob, out: Path, *, now: datetime, quiet: bool = False) -> dict[str, Any]:
    """Make the folder, or complete it; its manifest.

    Raises SamplesError (the ledger is of another run), UnavailableError (of the teacher), DataError (too few), ExportError.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{out}: cannot be made ({error.strerror})") from None
    teacher = job.teacher
    checks = [ContaminationCheck(suite) for suite in job.suites]
    arm = Arm(ARM, teacher.target, Variant(thinking=teacher.thinking > 0))
    collector = DataCollector(job.plan, job.counts, arm, checks, thinking=teacher.thinking)
    origin = _taught(collector, teacher, job, out, now, quiet)
    if short := collector.shortfalls():
        raise DataError(
            f"{out}: {'; '.join(short)}. Nothing was written; ask for fewer with --count, or for more tries with "
            "--tries: the answers so far are kept"
        )
    return _written(collector, job, out, origin)


def _taught(
    collector: DataCollector,
    teacher: TeacherServer,
    job: GenerationJob,
    out: Path,
    now: datetime,
    quiet: bool,
) -> dict[str, Any]:
    """Let the teacher answer; what the manifest says of it."""
    target = teacher.target
    arms = {ARM: (target.artefact, target.engine)}
    with SampleStore(out / LEDGER, suite=job.plan.digest, arms=arms) as ledger:
        (out / MANIFEST).unlink(missing_ok=True)  # the rows are about to change
        asyncio.run(_collect(collector, ledger, teacher, job.pace, quiet))
        asked = len(ledger)
    return {
        "created": now.isoformat(timespec="seconds"),
        "teacher": {"model": target.served_model, "dialect": target.dialect, "thinking": teacher.thinking},
        "answers_asked_for": asked,
    }


async def _collect(
    collector: DataCollector, ledger: SampleStore, teacher: TeacherServer, pace: Pace, quiet: bool
) -> None:
    """Ask until no conversation is open."""
    book: dict[str, Sample] = {sample.key.digest: sample for sample in ledger.samples()}
    display = ProgressDisplay(collector, lambda sample: book.__setitem__(sample.key.digest, sample), quiet)
    with closing(display):
        while pairs := collector.next_requests(ROUND * pace.concurrency):
            new = [ask for _, ask in pairs if ask.key.digest not in book]
            if new:
                await _ask(new, ledger, teacher, pace, display)
            for conversation, ask in pairs:
                collector.feed(conversation, read_reply(book[ask.key.digest]))


async def _ask(
    new: Iterable[Any], ledger: SampleStore, teacher: TeacherServer, pace: Pace, display: ProgressDisplay
) -> None:
    try:
        await run(new, {ARM: teacher.target}, ledger, pace=pace, progress=display)
    except RunError as error:
        if isinstance(error.__cause__, OSError):
            raise ExportError(str(error)) from None
        raise UnavailableError(str(error)) from None


def _written(
    collector: DataCollector, job: GenerationJob, out: Path, origin: Mapping[str, Any]
) -> dict[str, Any]:
    kept = list(collector.rows())
    manifest = {
        "schema": SCHEMA,
        "generator": GENERATOR,
        **origin,
        "plan": {
            "name": job.plan.name,
            "version": job.plan.version,
            "seed": job.plan.seed,
            "digest": job.plan.digest,
        },
        "file": write_rows(out / ROWS, kept),
        "conversations": len(kept),
        "categories": _by_category(job.plan, kept),
        "languages": dict(Counter(row["language"] for row in kept).most_common()),
        "with_calls": sum(any("tool_calls" in message for message in row["messages"]) for row in kept),
        "rejected": collector.rejected(),
        "clear_of": {suite.name: suite.digest for suite in job.suites},
    }
    write_file(out / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    return manifest


def _by_category(plan: DataPlan, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counts = Counter(row["category"] for row in rows)
    return {category.name: counts[category.name] for category in plan.categories}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write rows; what the manifest says of the file. Raises ExportError."""
    write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return {"name": path.name, "bytes": path.stat().st_size, "digest": file_digest(path)}


def write_file(path: Path, text: str) -> None:
    """Write a file atomically. Raises ExportError."""
    work = path.with_name(f".{path.name}.unfinished")
    try:
        work.unlink(missing_ok=True)
        with work.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        work.replace(path)
    except OSError as error:
        raise ExportError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        work.unlink(missing_ok=True)


class ProgressDisplay:
    """A line on stderr every ten seconds and one at the end. quiet: nothing. keep: is given every sample. The rounds of a
    run are one."""

    def __init__(self, collector: DataCollector, keep: Callable[[Sample], None], quiet: bool) -> None:
        self._collector, self._keep, self._quiet = collector, keep, quiet
        self._counts = RunCounts()
        self._began = self._told = time.monotonic()

    def start(self, total: int, present: int, later: int = 0) -> None:
        """Called when a round begins."""

    def sample(self, sample: Sample) -> None:
        """Called when an answer was recorded."""
        self._counts.add(sample)
        self._keep(sample)
        if time.monotonic() - self._told >= LINE_SECONDS:
            self.close()

    def stop(self) -> None:
        """Called when a round ends."""

    def close(self) -> None:
        """Print a line, as when the run ends or is stopped."""
        if self._quiet:
            return
        self._told = time.monotonic()
        asked, made = self._counts.asked, self._collector
        left = (self._told - self._began) / asked * made.steps_left if asked else None
        ahead = "" if left is None else f", {in_minutes(left)} left"
        line = f"conversations: {made.kept}/{made.wanted}, {asked} asked, {self._counts}{ahead}"
        print(line, file=sys.stderr, flush=True)
