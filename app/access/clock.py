"""The clock of limits and budgets."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

DAY: Final = 86_400


_elapsed: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Seconds that no step of the wall clock moves; where the system can tell, with those that it was suspended."""


class SteadyClock:
    """Unix seconds (meters survive a restart) that follow a step of the wall clock at most once in a day that has passed."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,  # noqa: TID251
        elapsed: Callable[[], float] = _elapsed,
    ) -> None:
        self._wall, self._elapsed = wall, elapsed
        self._began, self._at = wall(), elapsed()

    def __call__(self) -> float:
        passed = self._elapsed() - self._at
        if passed >= DAY:
            self._began, self._at, passed = self._wall(), self._at + passed, 0.0
        return self._began + passed


unix_now = SteadyClock()
