"""The loading lease, a file lock in the state folder: only one engine loads at a time on shared memory (vllm#35920).

vLLM measures free memory at its start and sizes its cache by it. The kernel releases the lease when the holder ends.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from deploy.core.errors import LeaseHeld

POLL_SECONDS = 0.25


def lease_path(state_dir: Path) -> Path:
    """The path of the lease for all processes that share this state folder."""
    return state_dir / "loading.lock"


class Lease:
    """The lease in one process. A holder is a text: an operation's id, or a command's name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._holder: str | None = None

    @property
    def holder(self) -> str | None:
        return self._holder

    def take(self, holder: str) -> None:
        """Acquire the lease; no effect if this holder has it. Raises LeaseHeld; OSError: the file cannot be locked."""
        if self._holder == holder:
            return
        if self._holder is not None:
            raise LeaseHeld(self._holder)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with os.fdopen(fd, "rb") as file:
                said = file.read(256).decode("utf-8", "replace").strip()
            raise LeaseHeld(said or "somebody") from None
        except BaseException:
            os.close(fd)
            raise
        self._fd, self._holder = fd, holder
        # For messages only; the lock alone decides, and is held on a full disk, too.
        with suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{holder} (pid {os.getpid()})\n".encode(), 0)

    def release(self, holder: str) -> None:
        """Release the lease; no effect if this holder does not have it."""
        if self._holder == holder and self._fd is not None:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = self._holder = None

    @asynccontextmanager
    async def held(self, holder: str, *, wait_s: float = 0.0) -> AsyncIterator[None]:
        """Hold the lease during the context, after waiting at most `wait_s`; a lease that was held before stays held. Raises LeaseHeld."""
        had = self._holder == holder
        end = time.monotonic() + wait_s
        while True:
            try:
                self.take(holder)
                break
            except LeaseHeld:
                if time.monotonic() >= end:
                    raise
            await asyncio.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            if not had:
                self.release(holder)
