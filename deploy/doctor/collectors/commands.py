"""Programs of the host, asked with a time limit; one that is missing or fails tells nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def ask(command: Sequence[str], seconds: float = 10.0) -> str | None:
    """What a program prints; None if it is not there, fails, or takes too long."""
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
