"""A bound on work that does not depend on the machine: Python functions entered, not seconds."""

import sys
from types import FrameType, TracebackType
from typing import Any


class TooManySteps(BaseException):
    """The work is not linear in the input. No Exception, so that nothing on the way swallows it."""


class Steps:
    """Ends the block that enters more than `limit` Python functions."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count = 0

    def __enter__(self) -> "Steps":
        sys.setprofile(self._entered)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(None)
        if isinstance(error, TooManySteps):
            raise AssertionError(f"more than {self._limit} function calls") from error

    def _entered(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.count += 1
            if self.count > self._limit:
                raise TooManySteps
