"""Turns for requests that cost milliseconds of the event loop: at most one in each of its iterations."""

import asyncio


class FairScheduler:
    """Lets requests go on in their order, and the event loop do everything else between two of them.

    A thousand connections may ask for `/metrics` at once: without turns, the loop would answer them all before it serves
    a stream.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def turn(self) -> None:
        """Wait for the caller's turn. A cancelled caller loses it to the next."""
        async with self._lock:
            await asyncio.sleep(0)
