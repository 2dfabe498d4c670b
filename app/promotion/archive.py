"""The registry behind one thread: SQLite waits for the disk, and the event loop must not.

Everything that touches the registry goes through `do`, one call at a time and in the order of the
calls. A caller that gives up does not undo what it asked for.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from app.registry.registry import Registry

T = TypeVar("T")

FILE = "registry.db"
"""In the state folder."""


class Archive:
    """A registry to be asked from the event loop. `open` it first; `close` lets the next writer in."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE
        self._thread = ThreadPoolExecutor(1, "registry")
        self._registry: Registry | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return self._registry is not None

    async def open(self) -> None:
        """Raises RegistryError: another gateway has it, or it is no registry; says which file."""
        self._registry = await self._run(self._open)

    def _open(self) -> Registry:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Registry(self._path)

    async def do(self, work: Callable[[Registry], T]) -> T:
        """What `work` gives, or raises. Raises StorageMissing if the file is gone, and then nothing is done."""
        registry = self._registry
        assert registry is not None  # nobody asks before it is open

        def checked() -> T:
            registry.check_is_there()
            return work(registry)

        return await self._run(checked)

    async def close(self) -> None:
        """Idempotent."""
        registry, self._registry = self._registry, None
        if registry is not None:
            await self._run(registry.close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
