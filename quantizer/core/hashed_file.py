"""A file that is hashed while it is written, so that a seal does not read it again."""

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from os import fsync
from pathlib import Path
from typing import Final

MODE: Final = 0o644
"""A server may run as another user."""


class HashedFile:
    """Open for writing. One thread beside the writer's hashes, and at the end flushes to the disk; at most two pieces of
    data are held. Pieces must not change after they are written."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._file = path.open("wb")
        path.chmod(MODE)
        self._digest, self._size = hashlib.sha256(), 0
        self._helper = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def write(self, data: bytes | memoryview) -> None:
        """Raises OSError."""
        if self._pending:
            self._pending.result()
        self._pending = self._helper.submit(self._digest.update, data)
        self._size += memoryview(data).nbytes
        self._file.write(data)

    def finish(self) -> Future[tuple[int, str]]:
        """Close the file. The result is its size and its SHA-256 (hex), once it is on the disk, or an OSError."""
        done = self._helper.submit(self._finish)
        self._helper.shutdown(wait=False)
        return done

    def abandon(self) -> None:
        """Close the file as it is."""
        self._helper.shutdown()
        self._file.close()

    def _finish(self) -> tuple[int, str]:
        with self._file:
            self._file.flush()
            fsync(self._file.fileno())
        return self._size, self._digest.hexdigest()
