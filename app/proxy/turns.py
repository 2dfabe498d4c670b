"""Turns for requests that cost milliseconds of the event loop: one in each of its iterations."""

import asyncio
from collections import deque


class FairScheduler:
    """Lets requests go on in their order, one in each iteration of the event loop; at once if none waits.

    A thousand connections may ask for `/metrics` at once: without turns, the loop would answer them all before it serves
    a stream.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False

    def take(self) -> bool:
        """Whether it is the caller's turn now; else `turn` is to be awaited."""
        if self._taken:
            return False
        self._taken = True
        loop = asyncio.get_running_loop()
        loop.call_soon(self._next, loop)
        return True

    async def turn(self) -> None:
        """Wait for the caller's turn. A cancelled caller loses it to the next."""
        if self.take():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(
                    None
                )  # it goes on in the next iteration, and the one after it in the following
                loop.call_soon(self._next, loop)
                return
        self._taken = False
