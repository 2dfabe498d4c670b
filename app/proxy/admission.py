"""Admission: a cap on concurrent requests, a bounded queue, and 429 for the rest."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from app.errors.tree import Busy


class AdmissionQueue:
    """A cap on concurrent requests with a bounded, first-come queue. One event loop only.

    `served` is what those are that have a place, in words for callers. `waited` is called with the seconds that a request
    has waited, until it had a place or gave up.
    """

    def __init__(
        self,
        concurrency: int,
        queue: int,
        served: str = "served",
        waited: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.concurrency = concurrency
        self.room = queue
        self._served = served
        self._waited = waited
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.in_flight = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def resize(self, concurrency: int, queue: int) -> None:
        """Change the cap and the queue's length. Requests that run or wait stay; freed slots go to waiting ones."""
        self.concurrency, self.room = concurrency, queue
        self._fill()

    async def enter(self, patience: float) -> None:
        """Take a place, and `leave` it at the end; wait at most `patience` seconds for it.

        Raises Busy: the queue is full, or no place was free in time. Code queue_full or queue_timeout.
        """
        if self.in_flight < self.concurrency and not self._waiting:
            self.in_flight += 1
            return self._waited(0.0)
        if len(self._waiting) >= self.room:
            raise Busy(
                f"{self.in_flight} requests are being {self._served} and {self.waiting} wait; try later"
            )
        began, turn = time.perf_counter(), asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException as error:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.cancelled():  # the place was given in this moment
                self.leave()
            if isinstance(error, TimeoutError):
                raise Busy(f"no place became free in {patience:g} s; try later", "queue_timeout") from None
            raise
        finally:
            self._waited(time.perf_counter() - began)

    def leave(self) -> None:
        """Give a place back: to who waits longest."""
        self.in_flight -= 1
        self._fill()

    def _fill(self) -> None:
        while self._waiting and self.in_flight < self.concurrency:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)
