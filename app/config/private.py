"""Modes of secret files and of the state folder, which protect them from other users of this host."""

import os
import stat
from errno import EPERM
from pathlib import Path


def read_secret(path: Path) -> str:
    """The text of a file that only its owner, and at most its group, can read. Raises OSError, UnicodeDecodeError."""
    with open(path, encoding="utf-8-sig") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode) and mode & 0o037:
            why = f"others may open it (mode {stat.S_IMODE(mode):03o}); run: chmod 600 {path}"
            raise PermissionError(EPERM, why)
        return file.read()


def check_unwritable(target: Path | int, path: Path) -> None:
    """Raises PermissionError if others may write to a file or folder; `target` is `path`, or a descriptor of it."""
    mode = os.stat(target).st_mode
    if mode & 0o022:
        cure = f"run: chmod {700 if stat.S_ISDIR(mode) else 600} {path}"
        raise PermissionError(EPERM, f"others may write to it (mode {stat.S_IMODE(mode):03o}); {cure}")
