"""Logs and counts every failure of background work: tasks of `deploy.core.tasks`, callbacks, and threads."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

from app.telemetry.log import Logger, where
from deploy.core.tasks import TASK

OTHER: Final = "other"  # outside of `deploy.core.tasks`: a callback, or a task that was never awaited
THREAD: Final = "thread"


def watch_failures(loop: asyncio.AbstractEventLoop, log: Logger, count: Callable[[str], None]) -> None:
    """Log every failure in the background of `loop`, and of any thread; call `count` with its name."""

    def failed(name: str, error: BaseException) -> None:
        count(name)
        log.error("task_failed", task=name, **where(error))

    def of_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            failed(str(context.get(TASK, OTHER)), error)
        else:
            loop.default_exception_handler(context)

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if isinstance(args.exc_value, Exception):  # SystemExit ends a thread in order
            failed(THREAD, args.exc_value)

    loop.set_exception_handler(of_loop)
    threading.excepthook = of_thread
