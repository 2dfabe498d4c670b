"""The resources of a request: a place, a turn, a thread, and room for its body. Waiting is bounded in number and time.

All of it is for one event loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, cast

from starlette.types import Receive

from app.errors.tree import BadHTTP, Busy
from app.proxy.deadlines import ClientGone

Made = TypeVar("Made")


class AdmissionQueue:
    """A cap on concurrent requests with a bounded, first-come queue.

    `waited` is called with the seconds that a request has waited, until it had a place or gave up.
    """

    def __init__(
        self, concurrency: int, queue: int, waited: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self.concurrency, self.room = concurrency, queue
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
            raise Busy(f"{self.in_flight} requests are being served and {self.waiting} wait; try later")
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


class FairScheduler(asyncio.Lock):
    """Lets requests that cost milliseconds of the event loop go on in their order, one in each of its iterations.

    A thousand connections may ask for `/metrics` at once: without turns, the loop would answer them all before it serves
    a stream.
    """

    async def turn(self) -> None:
        """Wait for the caller's turn. A cancelled caller loses it to the next."""
        async with self:
            await asyncio.sleep(0)


class ThreadQueue:
    """`count` threads for work that may take long, so that others are served meanwhile, and a queue of `waiting` before them."""

    def __init__(self, count: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(count)
        self.line = AdmissionQueue(count, waiting)

    async def do(
        self,
        work: Callable[[], Made],
        patience: float,
        translate: Callable[[BaseException], BaseException] = lambda error: error,
    ) -> Made:
        """The result of `work`; its errors go through `translate`.

        Raises Busy: the queue is full, or no thread was free in `patience` seconds.
        """
        await self.line.enter(patience)
        running = asyncio.get_running_loop().run_in_executor(self._threads, _outcome, work)
        running.add_done_callback(lambda _: self.line.leave())  # a cancelled caller cannot stop the thread
        error = None
        try:
            made, error = await asyncio.shield(running)
            if error is not None:
                raise translate(error)
            return cast(Made, made)
        finally:
            del running, error  # the error's frames hold this one


def _outcome(work: Callable[[], Made]) -> tuple[Made | None, BaseException | None]:
    """A future takes no StopIteration, and a CancelledError would look like the request's."""
    try:
        return work(), None
    except BaseException as error:
        return None, error


LITTLE_BYTES: Final = 64 << 10  # uvicorn reads so much of a body ahead: it belongs to the connection
LEAST_BYTES: Final = 64 << 20  # of all bodies together, where their own limit is small
SHARE: Final = 8  # one peer may hold so small a part of all
UPLOAD_SECONDS: Final = 10.0


class Uploads:
    """Room in memory for bodies of at most `limit` bytes: a budget for all peers together, and for each.

    A body of more than LITTLE_BYTES gets room for all of it before more is read, so that it can be read to its end; until
    then it waits in its peer's socket. A peer that has used up its share delays only itself, and a large body is not
    overtaken by smaller ones for ever.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: dict[str, int] = {}
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}

    async def body(self, receive: Receive, promised: bytes, peer: str) -> tuple[bytes, int]:
        """A body, and the room that it holds: the caller gives it back. `promised` is its Content-Length, a telling promise.

        Raises BadHTTP (body_too_large); Busy: there was no room in time. ClientGone: the caller left inside the body.
        """
        size = int(promised) if promised.isdigit() else 0
        body, more, held = bytearray(), True, 0  # no list: a body may come byte by byte
        try:
            while True:
                if size > self.limit:
                    raise BadHTTP(f"the body is larger than {self.limit} bytes: send less", "body_too_large")
                if not held and size > LITTLE_BYTES:
                    wanted = size if promised or not more else self.limit  # a chunked body does not say
                    await self._take(peer, wanted)
                    held = wanted
                if not more:
                    return bytes(body), held
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                body += message.get("body", b"")
                size, more = max(size, len(body)), message.get("more_body", False)
        except BaseException:
            self.give_back(peer, held)
            raise

    async def _take(self, peer: str, size: int) -> None:
        """Wait for room. Raises Busy: there was none in time."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = peer, size
        self._grant()
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                await turn
        except BaseException as error:
            if self._waiting.pop(turn, None) is None:  # granted in the same moment
                self._held[peer] -= size
            self._grant()
            if isinstance(error, TimeoutError):
                why = f"no memory for a body of {size} bytes became free in {UPLOAD_SECONDS:g} s; try later"
                raise Busy(why, "upload_timeout") from None
            raise

    def give_back(self, peer: str, size: int) -> None:
        """Free the room of a body."""
        if size:
            self._held[peer] -= size
            self._grant()

    def _grant(self) -> None:
        most = max(LEAST_BYTES, 4 * self.limit)
        each = max(most // SHARE, self.limit)
        self._held = {peer: held for peer, held in self._held.items() if held}
        for turn, (peer, size) in list(self._waiting.items()):
            held = self._held.get(peer, 0)
            if turn.done() or held + size > each:
                continue
            if sum(self._held.values()) + size > most:
                return
            del self._waiting[turn]
            self._held[peer] = held + size
            turn.set_result(None)
