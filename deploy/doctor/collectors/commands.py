"""Output of programs on the host, with a time limit. One that is missing or fails gives None."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


def ask(command: Sequence[str], seconds: float = 10.0) -> str | None:
    """A program's standard output; None if it is missing, fails, or takes too long."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def text_of(path: Path) -> str | None:
    """A file's text; None if it cannot be read."""
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return None
