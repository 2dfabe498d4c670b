"""The one loading lease: on shared memory, no two engines load at once.

vLLM measures what is free while it starts and sizes its cache by it; two that do so at the same time
find negative sizes, or the host's end (vllm#35920). The kernel keeps the lease, as a lock on a file of
the state folder: whoever ends, however, gives it back.
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
    """Where the lease of everything that shares this state folder lies."""
    return state_dir / "loading.lock"


class Lease:
    """The lease as one process sees it. A holder is a text: an operation's id, or a command's name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._holder: str | None = None

    @property
    def holder(self) -> str | None:
        """Who holds it through this object."""
        return self._holder

    def take(self, holder: str) -> None:
        """Hold the lease; no effect if this holder does already.

        Raises:
            LeaseHeld: somebody else has it, here or in another process.
            OSError: the file cannot be made.
        """
        if self._holder == holder:
            return
        if self._holder is not None:
            raise LeaseHeld(self._holder)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            said = os.pread(fd, 256, 0).decode("utf-8", "replace").strip()
            os.close(fd)
            raise LeaseHeld(said or "somebody") from None
        # For people, and for whoever finds it held; the lock alone decides.
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{holder} (pid {os.getpid()})\n".encode(), 0)
        self._fd, self._holder = fd, holder

    def release(self, holder: str) -> None:
        """Give it back; no effect if this holder does not have it."""
        if self._holder == holder and self._fd is not None:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = self._holder = None

    @asynccontextmanager
    async def held(self, holder: str, *, wait_s: float = 0.0) -> AsyncIterator[None]:
        """Hold it within this, waiting for it at most `wait_s`; one that was held before stays held.

        Raises:
            LeaseHeld: somebody else still has it.
        """
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
