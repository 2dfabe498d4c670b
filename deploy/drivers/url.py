"""The `url` driver: an engine that somebody else runs. A start waits until it streams."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deploy.core.errors import SpecError, StartCancelled, StartFailed, StartTimeout
from deploy.core.tasks import report
from deploy.engine.abilities import Abilities, abilities
from deploy.engine.engine import EngineState, OnChange, Phase
from deploy.engine.numerics import from_arguments
from deploy.engine.probe import served_model, wait_until_streams
from deploy.engine.spec import EngineSpec, spec_digest
from deploy.engine.watched import WatchedEngine


class UrlEngine(WatchedEngine):
    """An `Engine` at a fixed address. Nothing is started and nothing is stopped.

    `model` is the name to request; the default is the first in `/v1/models`. After a failed start it is asked again every `retry_s`.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        on_change: OnChange | None = None,
        model: str | None = None,
        start_timeout_s: float = 30.0,
        retry_s: float | None = None,
    ) -> None:
        if spec.driver != "url" or spec.url is None:
            raise SpecError(spec.name, "driver", f"{spec.driver!r} is not the url driver")
        super().__init__(spec, on_change)
        self._base = spec.url.rstrip("/").removesuffix("/v1")
        self._model = model
        self._start_timeout_s = start_timeout_s
        self._retry_s = retry_s
        self._retry: asyncio.TimerHandle | None = None
        self._probing: asyncio.Task[EngineState] | None = None

    async def start(self) -> EngineState:
        """Wait until it streams a token; see `Engine.start`."""
        if self.state.state is Phase.READY:
            return self.state
        mine = self._probing is None or self._probing.done()
        if mine:
            self._begin()
        assert self._probing is not None
        try:
            # Shielded, so that one caller's cancellation does not affect another.
            return await asyncio.shield(self._probing)
        except asyncio.CancelledError:
            if self._probing.cancelled():
                raise StartCancelled(self.name, "was stopped while it was starting") from None
            if mine:
                await self.stop()
            raise

    def failure(self) -> StartFailed:
        return StartTimeout(self.name, self.state.last_error or "")

    def _begin(self) -> None:
        self._cancel_retry()
        self._enter(Phase.STARTING)
        self._probing = asyncio.create_task(self._probe(), name=f"engine {self.name}")
        self._probing.add_done_callback(self._retry_if_failed)

    def _retry_if_failed(self, probing: asyncio.Task[EngineState]) -> None:
        error = None if probing.cancelled() else probing.exception()
        if error is None or self.state.state is Phase.STOPPED:
            return
        if not isinstance(error, StartFailed):  # a fault of ours, which nobody may be awaiting
            report("engine_ready", error)
            self._enter(Phase.FAILED, error="its driver failed; the gateway's log says where")
        if self._retry_s is not None:
            self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._begin)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def stop(self) -> None:
        """Give it no more traffic; the engine itself is not ours to stop."""
        self._cancel_retry()
        if self._probing is not None and not self._probing.done():
            self._probing.cancel()
            await asyncio.wait([self._probing])
        if self.state.state is not Phase.STOPPED:
            self._enter(Phase.STOPPED, error=self.state.last_error)

    async def leave(self) -> None:
        """The same as `stop`: the engine keeps running anyway."""
        await self.stop()

    def kill(self, why: str) -> None:
        """No effect: this gateway does not run the engine."""

    async def describe(self) -> Mapping[str, Any]:
        """See `Engine.describe`; only its address is known, and what the operator states of it."""
        return {
            "name": self.name,
            "driver": "url",
            "spec": spec_digest(self._spec),
            "url": self.url,
            "pid": None,
            "numerics": from_arguments(self._spec),
        }

    async def _probe(self) -> EngineState:
        end = time.monotonic() + self._start_timeout_s
        model = self._model
        while model is None and time.monotonic() < end:
            model = await served_model(self._base, deadline_s=2.0, access=self._spec.access)
            if model is None:
                await asyncio.sleep(0.1)
        result = await wait_until_streams(
            self._base,
            model=model or self.name,
            deadline_s=max(end - time.monotonic(), 0.0),
            dialect=self._spec.dialect,
            kind=self._spec.kind,
            access=self._spec.access,
        )
        if not result.ok:
            what = "stream" if self._spec.kind == "chat" else "give embeddings"
            why = f"{self._base} does not {what}: {result.for_operators}"
            self._enter(Phase.FAILED, error=why)
            raise self.failure()
        found = await abilities(self._base, self._spec, model=model or self.name)
        self._enter(Phase.READY, url=self._base, model=model, found=found)
        return self.state

    def _enter(
        self,
        phase: Phase,
        *,
        url: str | None = None,
        model: str | None = None,
        error: str | None = None,
        found: Abilities | None = None,
    ) -> None:
        fresh = EngineState(name=self.name, state=phase, since=time.monotonic())
        self._publish_state(
            replace(fresh, url=url, model=model, last_error=error, abilities=found or Abilities())
        )
