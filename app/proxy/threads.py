"""Work that may take long, in a thread: everybody else is served meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.api.history import BEGIN
from app.stream.pipeline import LARGE_BYTES

REPLIES = ThreadPoolExecutor(2, thread_name_prefix="large-read")
"""Few: they compete with the event loop for the interpreter's lock."""
REQUESTS = ThreadPoolExecutor(2, thread_name_prefix="large-request")
"""Threads of their own: what one caller asks delays no other's reply."""

_MARKS = tuple(mark.encode() for mark in dict.fromkeys(f"{BEGIN}[{{\\"))
"""What makes a request costly: what tags may begin with, also where JSON escapes it, and objects, each checked by itself."""
_MOST_MARKS = 1024

Made = TypeVar("Made")


def takes_long(request: bytes) -> bool:
    """Whether a request is to be read in a thread. Long plain text is not: it would wait for others there."""
    return len(request) > LARGE_BYTES and sum(map(request.count, _MARKS)) > _MOST_MARKS


async def outcome(
    threads: ThreadPoolExecutor, work: Callable[[], Made]
) -> tuple[Made | None, BaseException | None]:
    """What this returned, or raised.

    As it is, a future takes no StopIteration, and a CancelledError would be taken for the request's own.
    """
    return await asyncio.get_running_loop().run_in_executor(threads, _outcome, work)


def _outcome(work: Callable[[], Made]) -> tuple[Made | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:
        return None, error
