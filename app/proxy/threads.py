"""Work that may take long, in a thread, so that others are served meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, cast

from app.proxy.admission import AdmissionQueue

REPLIES: Final = ThreadPoolExecutor(2, thread_name_prefix="large-read")
"""Few, since they compete with the event loop for the interpreter's lock."""
REQUEST_THREADS: Final = 2
REQUESTS: Final = ThreadPoolExecutor(REQUEST_THREADS, thread_name_prefix="large-request")
"""Apart from REPLIES: a costly request delays no reply."""

REPORTS: Final = ThreadPoolExecutor(1, thread_name_prefix="report")
"""For reports that operators read, so that no step of a promotion waits for them."""

Made = TypeVar("Made")


Translate = Callable[[BaseException], BaseException]


async def in_thread(threads: ThreadPoolExecutor, work: Callable[[], Made], translate: Translate) -> Made:
    """The result of `work`; its errors go through `translate`.

    They are returned by the thread: a future takes no StopIteration, and a CancelledError would look like the request's.
    """
    made, error = await asyncio.get_running_loop().run_in_executor(threads, _outcome, work)
    if error is not None:
        try:
            raise translate(error)
        finally:
            del error  # its frames hold this one
    return cast(Made, made)


def _outcome(work: Callable[[], Made]) -> tuple[Made | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:
        return None, error


class ThreadQueue:
    """Threads with a bounded queue. `count` are the threads, `waiting` is the queue's length, `served` what is done with
    requests, in words for callers."""

    def __init__(self, threads: ThreadPoolExecutor, count: int, waiting: int, served: str) -> None:
        self._threads = threads
        self.line = AdmissionQueue(count, waiting, served)

    async def do(
        self, work: Callable[[], Made], patience: float, translate: Translate = lambda error: error
    ) -> Made:
        """See `in_thread`. Raises Busy: the queue is full, or no thread was free in `patience` seconds."""
        await self.line.enter(patience)
        running = asyncio.ensure_future(in_thread(self._threads, work, translate))
        running.add_done_callback(self._ended)  # a cancelled caller cannot stop the thread
        try:
            return await asyncio.shield(running)
        finally:
            del running  # it holds the error, too

    def _ended(self, done: "asyncio.Future[Made]") -> None:
        self.line.leave()
        if not done.cancelled():
            done.exception()  # marked as retrieved
