"""An engine's log: its path, what may be written to it, and its last lines.

Until the model is loaded there are no requests, and every line is kept. After that, a line is kept whole only if its form
shows that it cannot quote a request; of any other line only the prefix is kept (time, level, function or file).
"""

import asyncio
import re
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

READ_BYTES: Final = 8 << 10
"""What is split into lines before other tasks get a turn."""
LINE_BYTES: Final = 64 << 10
"""A longer line is logged in pieces."""
SAFE_BYTES = 1024
"""The longest line that is checked for signs of a crash."""

_LINE_ENDS: Final = re.compile(rb"[\r\n]+")
"""A progress bar ends its lines with CR alone."""
# Lines that may be kept whole once there are requests: the signs of a crash.
_SAFE = re.compile(
    rb"\S+\.(c|cc|cpp|cu|h):\d+: (GGML_ASSERT\([^\"']*\) failed|fatal error|CUDA error)$"
    rb"|[^\s(]+\([^\s()]*\) ?\[0x[0-9a-f]+\]$"  # a backtrace of the C library
    rb"|terminate called (after throwing an instance of '[\w:]+'|recursively|without an active)"
    rb"|Fatal Python error: [\w ]+$"
)
_HEAD = re.compile(
    rb"[\d.]+ [A-Z] +(?:(?:srv|slot|cmn|que|res|ggml|llama)\s+)?[\w~]+(?:\(\))?:"  # llama.cpp
    rb"|(?:\(\w+ pid=\d+\) )?[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[a-z0-9_/.]+\.py:\d+\]"  # vLLM
)


def withhold(line: bytes) -> bytes:
    """The line as it may be logged once there are requests."""
    if not line or (len(line) <= SAFE_BYTES and _SAFE.match(line)):
        return line
    head = _HEAD.match(line)
    kept = head.group() + b" " if head else b""
    return kept + b"[%d bytes withheld: they may quote a request]" % (len(line) - len(kept))


def log_path(state_dir: Path, engine: str) -> Path:
    """The path of an engine's log; the previous run's log is beside it as `NAME.log.1`."""
    return state_dir / "engines" / f"{engine}.log"


class LogFile:
    """The log of one run. Beginning it renames the previous run's log; at `limit` bytes, its own beginning.

    Nothing here raises: on a disk that takes no file, an engine runs without a log. `requests_flow` is set once the engine may
    have seen a request.
    """

    def __init__(self, path: Path, limit: int = 4 << 20) -> None:
        self._path, self._limit = path, limit
        self._file: FileIO | None = None
        self._room = 0
        self.requests_flow = False
        with suppress(OSError):
            self._begin()

    @property
    def is_kept(self) -> bool:
        """Whether there is a file of this run: else the one at its path is of an earlier run."""
        return self._file is not None

    def _begin(self) -> FileIO:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._path.exists():
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        full, self._file = self._file, self._path.open("wb", buffering=0)
        self._room = self._limit  # not before: what was written goes on only into a file that is bounded
        if full is not None:
            full.close()
        return self._file

    def note(self, text: str) -> None:
        """Add a line of the gateway."""
        self._add(b"# " + text.encode() + b"\n")

    def write(self, *lines: bytes) -> None:
        """Add lines of the engine, in one write; once there are requests, only the parts that cannot quote them."""
        if lines:
            kept = map(withhold, lines) if self.requests_flow else lines
            self._add(b"\n".join(kept) + b"\n")

    def _add(self, data: bytes) -> None:
        # Never raises: on a full disk the engine's output must still be drained, or the engine
        # would block.
        with suppress(OSError):
            file = self._begin() if self._file is None or self._room < len(data) else self._file
            self._room -= file.write(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


async def log_output(stream: asyncio.StreamReader, log: LogFile) -> None:
    """Log what an engine prints until its output ends, without empty lines."""
    held = b""
    while data := await stream.read(READ_BYTES):
        *lines, held = _LINE_ENDS.split(held + data)
        if len(held) > LINE_BYTES:
            lines, held = [*lines, held], b""
        log.write(*filter(None, lines))
        await asyncio.sleep(0)  # what is here already is read without a turn of the event loop
    log.write(*filter(None, [held]))


def start_of(path: Path, size: int = 1 << 20) -> str:
    """The beginning of the present run's log; "" if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def tail(path: Path, lines: int = 8) -> tuple[str, ...]:
    """The engine's last lines, oldest first, without the lines of `note`; () if there is no log."""
    try:
        text = path.read_bytes()[-16384:].decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(line for line in text.split("\n") if line.strip() and line[0] != "#")[-lines:]
