"""Progress of a run: a bar on a terminal, a line every ten seconds elsewhere; drawn between samples, never by a thread."""

import sys
import time
from dataclasses import dataclass
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from gates.contracts.sample import Sample

LINE_SECONDS: Final = 10.0
_DRAW_SECONDS: Final = 0.2


class RunProgress(Protocol):
    """The interface through which a run reports its progress."""

    def start(self, total: int, present: int, later: int = 0) -> None:
        """The number of planned samples, of those already on file, and of those that later parts of the run are known to need."""

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

    def __str__(self) -> str:
        return f"{self.lost} lost, {self.retried} retried"


class Display:
    """A bar with the time left if the stream is a terminal, else lines for a log."""

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        stream = stream or sys.stderr
        self._label, self._stream, self._counts, self._later = label, stream, RunCounts(), 0
        self._began = self._shown = 0.0
        self._bar: RichProgress | None = None
        if stream.isatty():
            columns = (
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[counts]}"),
                TimeElapsedColumn(),
            )  # fmt: skip
            self._bar = RichProgress(*columns, console=Console(file=stream), auto_refresh=False)
            self._task = self._bar.add_task(label, total=None, start=False, counts="")

    def start(self, total: int, present: int, later: int = 0) -> None:
        self._counts, self._later = RunCounts(total, present), later
        self._began = self._shown = time.monotonic()
        if self._bar:
            self._bar.update(self._task, total=total)
            self._bar.start_task(self._task)
            self._bar.start()

    def sample(self, sample: Sample) -> None:
        self._counts.add(sample)
        if time.monotonic() - self._shown >= (_DRAW_SECONDS if self._bar else LINE_SECONDS):
            self._show()

    def stop(self) -> None:
        self._show()
        if self._bar:
            self._bar.stop()

    def _show(self) -> None:
        self._shown, counts = time.monotonic(), self._counts
        said = str(counts)
        if counts.asked:
            left = counts.planned - counts.done + self._later
            said += f", {in_minutes((self._shown - self._began) / counts.asked * left)} left"
        if self._bar:
            self._bar.update(self._task, completed=counts.done, counts=said, refresh=True)
        else:
            print(f"{self._label}: {counts.done}/{counts.planned}, {said}", file=self._stream, flush=True)


def in_minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
