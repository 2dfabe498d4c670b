"""Files that survive a crash."""

import os
import tempfile
from pathlib import Path


def sync(path: Path) -> None:
    """Write a file to the disk; of a folder, the names in it. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def draft(path: Path, data: bytes, mode: int) -> Path:
    """Write data to the disk under another name in the folder of `path`, for a rename or a link; its path. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # created with mode 600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
    except OSError:
        os.unlink(name)
        raise
    return Path(name)
