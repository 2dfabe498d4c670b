"""Where an engine's present state hangs, for whoever wants to look or to wait."""

import asyncio

from deploy.core.tasks import report
from deploy.engine.engine import EngineState, OnChange


class StateBoard:
    """Holds the newest `EngineState` and tells of each new one. For one event loop."""

    def __init__(self, name: str, on_change: OnChange | None = None) -> None:
        self._state = EngineState(name=name)
        self._on_change = on_change
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def state(self) -> EngineState:
        return self._state

    def publish(self, state: EngineState) -> None:
        """Hang up a new state; the same one again is no news.

        An observer's error is handed to the loop's exception handler: it must not keep a child
        from being supervised.
        """
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
        """Wait until the state is another than `seen`."""
        while self._state == seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return self._state
