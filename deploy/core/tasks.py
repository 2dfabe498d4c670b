"""Background tasks: each has a name, and each failure is reported at once to the event loop's exception handler.

The report has the task's name under the key `TASK`; the gateway logs and counts it (`app.telemetry.task_failures`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

TASK: Final = "task_name"
"""Key of the task's name in the context of a report. Names are constants: they become label values."""
NAMES: Final = (
    "boot", "child_output", "child_report", "docker_signal", "engine_listener", "engine_ready", "engine_run", "engine_watch", "greeter", "limits", "listener",
    "overrides", "promotions", "reload", "replicas", "usage", "weights",
)  # fmt: skip
"""The names of all tasks: each counter starts at 0, so that its first failure is an increase in Prometheus."""
FIRST_PAUSE: Final = 0.5
"""Seconds before failed work is restarted; doubled with each failure."""
LONGEST_PAUSE: Final = 30.0
STABLE_SECONDS: Final = 60.0
"""Work that ran at least this many seconds before it failed is restarted after FIRST_PAUSE."""


def report(name: str, error: BaseException) -> None:
    """Tell the event loop's exception handler that background work has failed."""
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": f"{name} failed", "exception": error, TASK: name})


def spawn(work: Coroutine[Any, Any, T], name: str, of: str = "") -> asyncio.Task[T]:
    """Create a task whose failure is reported. `name` is the kind of task, `of` distinguishes several of a kind."""
    task = asyncio.get_running_loop().create_task(work, name=f"{name} {of}".rstrip())
    task.add_done_callback(partial(_check, name))
    return task


def supervise(make: Callable[[], Coroutine[Any, Any, None]], name: str, of: str = "") -> asyncio.Task[None]:
    """Create a task that runs `make()` until it returns, and again after each failure, which is reported."""
    return spawn(restarting(make, name), name, of)


async def restarting(
    make: Callable[[], Awaitable[None]],
    name: str,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """What `supervise` runs. Pauses grow from FIRST_PAUSE to LONGEST_PAUSE seconds."""
    loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
    while True:
        began = loop.time()
        try:
            return await make()
        except Exception as error:
            report(name, error)
        if loop.time() - began >= STABLE_SECONDS:
            pause = FIRST_PAUSE
        await sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _check(name: str, task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        report(name, error)
