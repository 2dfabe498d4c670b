"""The present state of an engine, to be read or waited for."""

import asyncio

from deploy.core.tasks import report
from deploy.engine.engine import EngineState, OnChange
from deploy.engine.spec import EngineSpec


class WatchedEngine:
    """What every `Engine` has: a spec, and a state that can be waited for. For one event loop."""

    def __init__(self, spec: EngineSpec, on_change: OnChange | None) -> None:
        self._spec = spec
        self._state = EngineState(name=spec.name)
        self._on_change = on_change
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def url(self) -> str | None:
        return self._state.url

    def _publish_state(self, state: EngineState) -> None:
        """Publish a state; duplicates are ignored. A listener's error is reported and does not stop the supervision."""
        if state == self._state:
            return
        self._state = state
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._on_change is not None:
            try:
                self._on_change(state)
            except Exception as error:
                report("engine_listener", error)

    async def changed(self, seen: EngineState) -> EngineState:
        """Wait until the state differs from `seen`, and return it."""
        while self._state == seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return self._state
