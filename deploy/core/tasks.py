"""Background tasks: every one has a name, and none can fail without a report.

`asyncio` keeps the exception of a task until somebody asks for it. A task that nobody awaits may so die in
silence. `spawn` reports a failure as soon as it happens, and `supervise` also starts the work again.

A report goes to the event loop's exception handler (`loop.call_exception_handler`) with the name of the
task under the key `TASK`. The gateway installs a handler that logs and counts it (`app.telemetry.task_failures`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

TASK: Final = "task_name"
"""Key of the task's name in the context of a report. Names are constants: they become label values."""
NAMES: Final = (
    "boot", "docker_signal", "engine_listener", "engine_ready", "engine_run", "engine_watch", "greeter", "listener",
    "overrides", "promotions",
)  # fmt: skip
"""Every name that a task of ours has: a counter must stand at 0 before the first failure, or that is no increase."""
FIRST_PAUSE: Final = 0.5
"""Seconds before work that failed is started again; doubled with each failure."""
LONGEST_PAUSE: Final = 30.0
STABLE_SECONDS: Final = 60.0
"""Work that ran for so long before it failed is started again after the first pause."""


def report(name: str, error: BaseException) -> None:
    """Tell the event loop's exception handler that background work has failed."""
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": f"{name} failed", "exception": error, TASK: name})


def spawn(work: Coroutine[Any, Any, T], name: str, of: str = "") -> asyncio.Task[T]:
    """A task that is reported if it fails. `name` says what kind of task, `of` which one of them."""
    task = asyncio.get_running_loop().create_task(work, name=f"{name} {of}".rstrip())
    task.add_done_callback(partial(_check, name))
    return task


def supervise(make: Callable[[], Coroutine[Any, Any, None]], name: str, of: str = "") -> asyncio.Task[None]:
    """A task that runs `make()` to its end, and again after each failure, which is reported.

    Cancel the task to end it.
    """
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
