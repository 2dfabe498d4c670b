"""Work that may take long, in a thread: everybody else is served meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

REPLIES: Final = ThreadPoolExecutor(2, thread_name_prefix="large-read")
"""Few: they compete with the event loop for the interpreter's lock."""
REQUEST_THREADS: Final = 2
REQUESTS: Final = ThreadPoolExecutor(REQUEST_THREADS, thread_name_prefix="large-request")
"""Threads of their own: what one caller asks delays no other's reply."""

Made = TypeVar("Made")


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
