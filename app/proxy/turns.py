"""Turns for requests that cost milliseconds of the event loop: one in each of its iterations."""

import asyncio
from collections import deque


class TurnQueue:
    """Lets callers go on in the order in which they came, one in each iteration of the event loop.

    A thousand connections that pipeline `GET /metrics` have a thousand requests ready at once, and the loop would answer
    them all before it reads or writes anything else. With turns, every stream moves between two of them. Who comes
    when nobody waits goes on at once.
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
        """Returns when it is the caller's turn. Who is cancelled meanwhile loses it to the next."""
        if self.take():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                # It goes on in the next iteration, and so does the one behind it in the one after.
                turn.set_result(None)
                loop.call_soon(self._next, loop)
                return
        self._taken = False
