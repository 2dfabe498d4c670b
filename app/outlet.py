"""Writing to a caller from a callback, through ASGI's `send`.

`send` is a coroutine function, but while the caller's socket takes bytes it never waits. So it is
stepped by hand, once, and is done; only when it does wait (a slow reader) is a task made that
carries the same coroutine to its end. Measured: 3 to 4 us a chunk less than waking a task each time.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from typing import Any, cast

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@types.coroutine
def _carry_on(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Await what a hand-stepped coroutine waits for, and step it until it ends."""
    try:
        while True:
            try:
                value = yield waits_for
            except BaseException as error:  # a cancellation belongs to the coroutine
                waits_for = coroutine.throw(error)
            else:
                waits_for = coroutine.send(value)
    except StopIteration:
        return


class Outlet:
    """Sends messages in order. `on_full` and `on_free` are called when a slow reader blocks it."""

    def __init__(self, send: Send, on_full: Callable[[], None], on_free: Callable[[], None]) -> None:
        self._send = send
        self._on_full = on_full
        self._on_free = on_free
        self._queue: list[MutableMapping[str, Any]] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, message: MutableMapping[str, Any]) -> None:
        """Send a message now, or after those that wait already."""
        if self._task is not None:
            self._queue.append(message)
            return
        coroutine = cast(Coroutine[Any, Any, None], self._send(message))
        try:
            waits_for = coroutine.send(None)
        except StopIteration:
            return
        self._task = asyncio.get_running_loop().create_task(self._drain(coroutine, waits_for))
        self._on_full()

    async def _drain(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        await _carry_on(coroutine, waits_for)
        while self._queue:
            await self._send(self._queue.pop(0))
        self._task = None
        self._on_free()

    async def flushed(self) -> None:
        """Wait until everything has been sent."""
        if self._task is not None:
            await self._task

    def abandon(self) -> None:
        """Send nothing more."""
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
