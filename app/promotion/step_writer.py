"""Writes the steps of one operation to the registry, in their order, each until the disk takes it."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from app.promotion.repository import RegistryExecutor
from app.registry.errors import StorageFailed
from app.registry.registry import Registry
from app.telemetry.log import Logger
from app.telemetry.metrics import Metrics

DISK_SECONDS: Final = 2.0
"""The pause before a failed write is retried."""

Write = Callable[[Registry], object]


class StateReporter:
    """Counts every failure of the state folder, and logs one when its code changes, and the end."""

    def __init__(self, metrics: Metrics, log: Logger) -> None:
        self._metrics = metrics
        self._log = log
        self._fault: str | None = None  # the code of the last failure, while it lasts

    def failed(self, error: StorageFailed) -> None:
        """It could not be read or written."""
        self._metrics.count("manners_state_failures_total", error.code)
        self._metrics.gauge("manners_state_available", 0)
        if self._fault != error.code:
            self._log.error("registry_failed", code=error.code, error=str(error))
        self._fault = error.code

    def works(self) -> None:
        """It was written."""
        self._metrics.gauge("manners_state_available", 1)
        if self._fault is not None:
            self._log.warning("registry_works_again", code=self._fault)
        self._fault = None


class StepWriter:
    """`add` a step, then wait until it is `written`, or go on and let it be written later.

    A failure of the disk is reported, and the step is tried again. Any other failure ends the writing, and is raised by
    `written`.
    """

    def __init__(self, registry: RegistryExecutor, metrics: Metrics, log: Logger) -> None:
        self._registry = registry
        self._state = StateReporter(metrics, log)
        self._waiting: deque[Write] = deque()
        self._trying = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether there are steps that the disk has not taken yet."""
        return bool(self._waiting)

    def add(self, write: Write) -> None:
        """Begin to write a step, after those that were added before."""
        self._waiting.append(write)
        if self._task is None or (self._task.done() and self._task.exception() is None):
            self._task = asyncio.create_task(self._write(), name="steps")

    async def written(self, *wakers: asyncio.Future[Any], timeout: float | None = None) -> bool:
        """Whether all steps are written, after at most so long, or when one of `wakers` is done. Raises RegistryError."""
        if self._task is None:
            return True
        await asyncio.wait({self._task, *wakers}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not self._task.done():
            return False
        task, self._task = self._task, None
        task.result()
        return True

    async def withdraw(self, write: Write) -> bool:
        """Take back the step that was added last; False: it is written."""
        async with self._trying:
            if write not in self._waiting:
                return False
            self._waiting.remove(write)
            return True

    async def stop(self) -> None:
        """Drop the steps that are not written."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _write(self) -> None:
        while self._waiting:
            async with self._trying:
                written = not self._waiting or await self._try(self._waiting[0])
            if not written:
                await asyncio.sleep(DISK_SECONDS)

    async def _try(self, write: Write) -> bool:
        try:
            await self._registry.run(write)
        except StorageFailed as error:
            self._state.failed(error)
            return False
        except BaseException:
            self._waiting.popleft()
            raise
        self._waiting.popleft()
        self._state.works()
        return True
