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
        while self._waiting and self.in_flight < concurrency:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)

    def place(self, patience: float) -> "_Place":
        """`async with`: hold a place until the block ends; wait at most `patience` seconds for it.

        Raises Busy: the queue is full, or no place was free in time. Code queue_full or queue_timeout.
        """
        return _Place(self, patience)

    async def _turn(self) -> None:
        """Wait in line for a place. One that is given in the moment of a cancel goes to the next."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def _leave(self) -> None:
        while self._waiting and self.in_flight <= self.concurrency:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)  # the place changes hands: in_flight stays
                return
        self.in_flight -= 1


class _Place:
    """A class, not a generator: it runs in every request."""

    __slots__ = ("_patience", "_queue")

    def __init__(self, queue: AdmissionQueue, patience: float) -> None:
        self._queue = queue
        self._patience = patience

    async def __aenter__(self) -> None:
        queue = self._queue
        if queue.in_flight < queue.concurrency and not queue._waiting:
            queue.in_flight += 1
            return queue._waited(0.0)
        if len(queue._waiting) >= queue.room:
            raise Busy(
                f"{queue.in_flight} requests are being {queue._served} and {queue.waiting} wait; try later"
            )
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._patience):
                await queue._turn()
        except TimeoutError:
            raise Busy(f"no place became free in {self._patience:g} s; try later", "queue_timeout") from None
        finally:
            queue._waited(time.perf_counter() - began)

    async def __aexit__(self, *_: object) -> None:
        self._queue._leave()
