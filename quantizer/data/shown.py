"""What `manners data generate` shows while it goes on: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gates.contracts.sample import Sample
from quantizer.data.harvest import Harvest

LINE_SECONDS: Final = 10.0


class Shown:
    """The state of a run on stderr, and every sample to whoever keeps them. quiet: nothing is shown."""

    def __init__(
        self,
        harvest: Harvest,
        keep: Callable[[Sample], None],
        *,
        quiet: bool = False,
        to: TextIO | None = None,
    ) -> None:
        self._harvest, self._keep, self._quiet = harvest, keep, quiet
        self._stream = to or sys.stderr
        self._began = self._told = time.monotonic()
        self._asked = self._lost = self._retried = 0
        self._bar: Progress | None = None
        if not quiet and self._stream.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[counts]}"), TimeElapsedColumn(),
                console=Console(file=self._stream), auto_refresh=False,
            )  # fmt: skip
            self._task = self._bar.add_task("conversations", total=harvest.wanted, counts="")
            self._bar.start()

    def start(self, total: int, present: int) -> None:
        """A round begins; a run has many."""

    def sample(self, sample: Sample) -> None:
        """One more answer is on file."""
        self._asked += 1
        self._lost += sample.fault is not None
        self._retried += bool(sample.retries)
        self._keep(sample)
        self._draw()

    def stop(self) -> None:
        """A round is over."""

    def close(self) -> None:
        """The run is over, or was stopped."""
        self._draw(last=True)
        if self._bar:
            self._bar.stop()

    def counts(self) -> str:
        """12 asked, 1 lost, 2 retried, 40 s left."""
        left = self.seconds_left(time.monotonic() - self._began)
        ahead = "" if left is None else f", {_span(left)} left"
        return f"{self._asked} asked, {self._lost} lost, {self._retried} retried{ahead}"

    def seconds_left(self, elapsed: float) -> float | None:
        """At the rate so far, if the teacher goes on to do as well; None before the first answer."""
        return elapsed / self._asked * self._harvest.steps_left if self._asked else None

    def _draw(self, last: bool = False) -> None:
        if self._bar:
            self._bar.update(self._task, completed=self._harvest.kept, counts=self.counts())
            self._bar.refresh()
        elif not self._quiet and (last or time.monotonic() - self._told >= LINE_SECONDS):
            self._told = time.monotonic()
            text = f"conversations: {self._harvest.kept}/{self._harvest.wanted}, {self.counts()}"
            print(text, file=self._stream, flush=True)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
