"""What was written stays, whatever happens to the power."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Write a file to the disk; of a folder, the names in it. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
