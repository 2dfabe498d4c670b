"""The `url` driver: an engine that somebody else runs. A start waits until it streams."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Unpack

from deploy.core.errors import StartFailed, StartTimeout
from deploy.engine.probe import served_model
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine, EngineRun, RunEnd, Supervision

ASK_SECONDS = 2.0
LOOK_SECONDS = 0.1


class UrlEngine(Engine):
    """An `Engine` at a fixed address. Nothing is started and nothing is stopped.

    `model` is the name to request; the default is the first in `/v1/models`.
    """

    start_timeout_s = 30.0

    def __init__(self, spec: EngineSpec, *, model: str | None = None, **how: Unpack[Supervision]) -> None:
        assert spec.url is not None  # of every spec for this driver
        super().__init__(spec, state_dir=Path(), **how)  # it writes no log
        self._base = spec.url.rstrip("/").removesuffix("/v1")
        self._given = self._model = model

    def _prepare(self) -> None:
        """No effect: the artefact may lie on the host of whoever runs the engine."""

    def _weights_on_disk(self) -> None:
        """None: the artefact may lie on another host."""

    async def _start_log(self) -> str:
        return ""

    async def _spawn(self) -> EngineRun:
        return _Attached(self._address)

    async def _address(self) -> str:
        """Its address, once it has named its model, or after half the time: the rest is for a probe, which says what is wrong."""
        self._model = self._given
        try:
            async with asyncio.timeout(self._start_timeout_s / 2):
                while self._model is None:
                    self._model = await served_model(
                        self._base, deadline_s=ASK_SECONDS, access=self._spec.access
                    )
                    if self._model is None:
                        await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            pass
        return self._base

    def failure(self) -> StartFailed:
        return StartTimeout(self.name, self.state.last_error or "")

    def kill(self, why: str) -> None:
        """No effect: this gateway does not run the engine."""


class _Attached:
    """A run at a fixed address. `terminate` ends the run, and the engine goes on."""

    pid = None

    def __init__(self, address: Callable[[], Awaitable[str]]) -> None:
        self._address, self._over = address, asyncio.Event()

    async def address(self) -> str:
        return await self._address()

    def up(self) -> None:
        """Its output is not ours."""

    def terminate(self) -> None:
        self._over.set()

    kill = terminate

    async def wait(self) -> RunEnd:
        await self._over.wait()
        return RunEnd("was left")

    def close(self) -> None:
        """No effect: the run holds no resource."""
