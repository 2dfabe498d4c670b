"""Admission: a cap on concurrent requests, a bounded queue, and 429 for the rest."""

import asyncio
from collections import deque
from collections.abc import Callable

from app.errors.tree import Busy


class AdmissionQueue:
    """A cap on concurrent requests with a bounded, first-come queue. One event loop only.

    `on_change(in_flight, waiting)` is called after every change, for the gauges.
    """

    def __init__(
        self, concurrency: int, queue: int, on_change: Callable[[int, int], None] | None = None
    ) -> None:
        self._concurrency = concurrency
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._on_change = on_change or (lambda in_flight, waiting: None)
        self.in_flight = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def resize(self, concurrency: int, queue: int) -> None:
        """Change the cap and the queue's length. What is served or waits stays; freed places go to who waits."""
        self._concurrency, self._queue = concurrency, queue
        while self._waiting and self.in_flight < concurrency:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)
        self._changed()

    def place(self, patience: float) -> "_Place":
        """`async with`: hold a place until the block ends; wait at most `patience` seconds for it.

        Raises:
            Busy: the queue is full, or the wait was in vain. Code queue_full or queue_timeout.
        """
        return _Place(self, patience)

    async def _enter(self, patience: float) -> None:
        if self.in_flight < self._concurrency and not self._waiting:
            self.in_flight += 1
            self._changed()
            return
        if len(self._waiting) >= self._queue:
            raise Busy(f"{self.in_flight} requests are being served and {self.waiting} wait; try later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._changed()
        try:
            async with asyncio.timeout(patience):
                await turn
        except TimeoutError:
            self._give_up(turn)
            raise Busy(f"no place became free in {patience:g} s; try later", "queue_timeout") from None
        except asyncio.CancelledError:
            self._give_up(turn)
            raise

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        """Leave the queue; a turn that was given at the same moment goes to the next."""
        if turn.done() and not turn.cancelled():
            self._leave()
            return
        if turn in self._waiting:
            self._waiting.remove(turn)
        self._changed()

    def _leave(self) -> None:
        while self._waiting and self.in_flight <= self._concurrency:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)  # the place changes hands: in_flight stays
                self._changed()
                return
        self.in_flight -= 1
        self._changed()

    def _changed(self) -> None:
        self._on_change(self.in_flight, self.waiting)


class _Place:
    """A class, not a generator: it runs in every request."""

    __slots__ = ("_patience", "_queue")

    def __init__(self, queue: AdmissionQueue, patience: float) -> None:
        self._queue = queue
        self._patience = patience

    async def __aenter__(self) -> None:
        await self._queue._enter(self._patience)

    async def __aexit__(self, *_: object) -> None:
        self._queue._leave()
