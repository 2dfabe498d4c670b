"""Progress display of a run: a bar on a terminal, a line every ten seconds elsewhere.

Drawing takes a millisecond or two, which could show up in latencies. It is done only between samples,
and never by a thread of its own.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from gates.contracts.sample import Sample

LINE_SECONDS: Final = 10.0
_DRAW_SECONDS: Final = 0.2


class RunProgress(Protocol):
    """The interface through which a run reports its progress."""

    def start(self, total: int, present: int) -> None:
        """The number of planned samples, and of those already on file."""

    def sample(self, sample: Sample) -> None:
        """One more sample is on file."""

    def stop(self) -> None:
        """The run has ended or was stopped."""


@dataclass(slots=True)
class RunCounts:
    """Counts of a run: `planned` samples, of which `present` were on file before and `asked` are new."""

    planned: int = 0
    present: int = 0
    asked: int = 0
    lost: int = 0
    retried: int = 0

    def add(self, sample: Sample) -> None:
        """Count a new sample."""
        self.asked += 1
        self.lost += sample.fault is not None
        self.retried += bool(sample.retries)

    @property
    def done(self) -> int:
        return self.present + self.asked

    def seconds_left(self, elapsed: float) -> float | None:
        """The estimated time left at the rate so far; None before the first sample."""
        return elapsed / self.asked * (self.planned - self.done) if self.asked else None

    def __str__(self) -> str:
        return f"{self.lost} lost, {self.retried} retried"


class ProgressLines:
    """A line every ten seconds and one at the end, for logs."""

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self._label, self._stream = label, stream or sys.stderr
        self._counts = RunCounts()
        self._began = self._shown = 0.0

    def start(self, total: int, present: int) -> None:
        self._counts = RunCounts(total, present)
        self._began = self._shown = time.monotonic()

    def sample(self, sample: Sample) -> None:
        self._counts.add(sample)
        if time.monotonic() - self._shown >= LINE_SECONDS:
            self._show()

    def stop(self) -> None:
        self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        left = self._counts.seconds_left(self._shown - self._began)
        ahead = "" if left is None else f", {in_minutes(left)} left"
        counts = self._counts
        print(
            f"{self._label}: {counts.done}/{counts.planned}, {counts}{ahead}", file=self._stream, flush=True
        )


class ProgressBar:
    """A bar with the time left, for a terminal."""

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self._counts = RunCounts()
        self._drawn = 0.0
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream or sys.stderr),
            auto_refresh=False,
        )
        self._task = self._bar.add_task(label, total=None, start=False, counts="")

    def start(self, total: int, present: int) -> None:
        self._counts = RunCounts(total, present)
        self._bar.update(self._task, total=total, completed=present, counts=str(self._counts))
        self._bar.start_task(self._task)
        self._bar.start()

    def sample(self, sample: Sample) -> None:
        self._counts.add(sample)
        self._bar.update(self._task, advance=1, counts=str(self._counts))
        if time.monotonic() - self._drawn >= _DRAW_SECONDS:
            self._drawn = time.monotonic()
            self._bar.refresh()

    def stop(self) -> None:
        self._bar.stop()


def make_progress(label: str, stream: TextIO | None = None) -> RunProgress:
    """A bar if the stream (default: standard error) is a terminal, else lines."""
    stream = stream or sys.stderr
    return ProgressBar(label, stream) if stream.isatty() else ProgressLines(label, stream)


def in_minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
