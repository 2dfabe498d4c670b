"""An engine's log: where it lies, what may stand in it, and its last lines.

Until the model is loaded no request has been seen, and every line is kept. After that a line is
kept whole only if its shape says that it cannot quote a request: llama.cpp prints parts of
grammars, schemas and unparsable bodies, some of them past its own verbosity setting. Of any other
line the head remains (time, level, function), so that one sees that something happened, and where.
"""

import re
from contextlib import suppress
from pathlib import Path

SAFE_BYTES = 1024
"""A longer line is no mark of a crash; nor is it worth the time to look."""

# What may be kept whole once requests flow: the marks of a crash.
_SAFE = re.compile(
    rb"\S+\.(c|cc|cpp|cu|h):\d+: (GGML_ASSERT\([^\"']*\) failed|fatal error|CUDA error)$"
    rb"|[^\s(]+\([^\s()]*\) ?\[0x[0-9a-f]+\]$"  # a backtrace of the C library
    rb"|terminate called (after throwing an instance of '[\w:]+'|recursively|without an active)"
    rb"|Fatal Python error: [\w ]+$"
)
_HEAD = re.compile(rb"[\d.]+ [A-Z] +(?:(?:srv|slot|cmn|que|res|ggml|llama)\s+)?[\w~]+(?:\(\))?:")


def withhold(line: bytes) -> bytes:
    """The line as it may be kept once requests flow."""
    if not line or (len(line) <= SAFE_BYTES and _SAFE.match(line)):
        return line
    head = _HEAD.match(line)
    kept = head.group() + b" " if head else b""
    return kept + b"[%d bytes withheld: they may quote a request]" % (len(line) - len(kept))


def log_path(state_dir: Path, engine: str) -> Path:
    """Where an engine logs; the log of the run before lies beside it, as `NAME.log.1`."""
    return state_dir / "engines" / f"{engine}.log"


class LogFile:
    """One run's log. Opening it moves the last run's log aside.

    Writes are small and rare (llama.cpp is told to log errors only), so they are not handed to
    a thread. `requests_flow` is set when the engine may have seen its first request.

    Raises:
        OSError: the folder or the file cannot be made.
    """

    def __init__(self, path: Path, limit: int = 4 << 20) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists():
            path.replace(path.with_name(path.name + ".1"))
        self._file = path.open("wb", buffering=0)
        self._room = limit
        self.requests_flow = False

    def note(self, text: str) -> None:
        """Add a line of our own."""
        self._add(b"# " + text.encode())

    def write(self, line: bytes) -> None:
        """Add a line of the engine's, as far as it may be kept."""
        self._add(withhold(line) if self.requests_flow else line)

    def _add(self, line: bytes) -> None:
        # Never raises: a full disk must not stop whoever drains the engine's output, or the
        # engine itself would stand still.
        if self._room <= 0:
            return
        self._room -= len(line) + 1
        with suppress(OSError):
            self._file.write(line + b"\n" if self._room > 0 else b"# this log is full\n")

    def close(self) -> None:
        self._file.close()


def tail(path: Path, lines: int = 8) -> tuple[str, ...]:
    """The engine's own last lines, oldest first; none if there is no log. Lines of ours are out."""
    try:
        text = path.read_bytes()[-16384:].decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(line for line in text.split("\n") if line.strip() and line[0] != "#")[-lines:]
