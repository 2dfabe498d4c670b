"""An engine's output on its way into its log: however much it is, the event loop has time for others.

Up to BURST a run's output is logged in full, then RATE a second; the log says how many bytes beyond that were left out. The
last bytes of a run are logged in any case.
"""

import asyncio
import time
from typing import Final

from deploy.core.lines import LineSplitter
from deploy.engine.log import LogFile

READ_BYTES: Final = 8 << 10
"""What is split into lines before others get a turn: 8,192 empty ones take some 10 ms."""
DROP_BYTES: Final = 128 << 10
"""What is read at once while nothing is logged,"""
DROP_SECONDS: Final = 0.01
"""and the pause after it."""
LINE_BYTES: Final = 64
BURST: Final = 4 << 20
RATE: Final = 256 << 10
LAST_BYTES: Final = 16 << 10
"""Kept of what is left out, for the case that it was the end."""


class EngineOutput:
    """The output of one run, read by read. Pure, except that it writes to the log."""

    def __init__(self, log: LogFile, now: float) -> None:
        self._log = log
        self._splitter = LineSplitter(limit=1 << 16)
        self._allowed, self._at = float(BURST), now
        self._left_out = 0
        self._last = b""

    @property
    def is_too_much(self) -> bool:
        """Whether what comes is left out."""
        return self._left_out > 0

    def feed(self, data: bytes, now: float) -> None:
        """What was read now, in monotonic seconds."""
        self._allowed = min(self._allowed + (now - self._at) * RATE, BURST)
        self._at = now
        # Begun again not before there is room for much: else each read would be cut in two.
        if self._allowed < (RATE if self.is_too_much else 0):
            self._left_out += len(data)
            self._last = (self._last + data)[-LAST_BYTES:]
            return
        if self.is_too_much:
            self._tell(self._left_out)
        lines = self._splitter.feed(data)
        self._allowed -= len(data) + LINE_BYTES * len(lines)
        self._log.write(*lines)

    def close(self) -> None:
        """The output has ended."""
        if self.is_too_much:
            last = self._last
            self._tell(self._left_out - len(last))
            self._log.write(*self._splitter.feed(last))
        self._log.write(*self._splitter.close())

    def _tell(self, left_out: int) -> None:
        self._log.write(*self._splitter.close())
        self._log.note(f"{left_out} bytes of its output are left out: it prints more than is logged")
        self._left_out, self._last = 0, b""


async def log_output(stream: asyncio.StreamReader, log: LogFile) -> None:
    """Log what comes until the stream ends."""
    output = EngineOutput(log, time.monotonic())
    while data := await stream.read(DROP_BYTES if output.is_too_much else READ_BYTES):
        output.feed(data, time.monotonic())
        # Not only where it is too much: what is here already is read without a turn of the event loop.
        await asyncio.sleep(DROP_SECONDS if output.is_too_much else 0)
    output.close()
