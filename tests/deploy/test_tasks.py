"""No background task fails unseen, and what should go on is started again."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deploy.core.tasks import FIRST_PAUSE, LONGEST_PAUSE, STABLE_SECONDS, TASK, restarting, spawn

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def reports() -> AsyncIterator[list[tuple[Any, type]]]:
    """What the event loop is told meanwhile: names, and types of errors."""
    seen: list[tuple[Any, type]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, c: seen.append((c.get(TASK), type(c.get("exception")))))
    try:
        yield seen
    finally:
        loop.set_exception_handler(None)


async def fail() -> None:
    raise RecursionError("deep")


@pytest.mark.slow  # a process is started: 2 s
async def test_a_task_that_fails_is_reported_at_once_and_no_other_end_is() -> None:
    async with reports() as seen:
        task = spawn(fail(), "engine_run", "annie")
        await asyncio.wait([task])
        assert (seen, task.get_name()) == ([("engine_run", RecursionError)], "engine_run annie")
        del task
        gc.collect()
        sleeping, ending = spawn(asyncio.sleep(60), "a"), spawn(asyncio.sleep(0), "b")
        sleeping.cancel()
        await asyncio.wait([sleeping, ending])
    assert len(seen) == 1


async def test_supervised_work_is_started_again_until_it_ends() -> None:
    outcomes = iter([ValueError(), None])

    async def work() -> None:
        error = next(outcomes)
        if error is not None:
            raise error

    async with reports() as seen:
        pauses: list[float] = []
        await restarting(work, "engine_watch", lambda s: _note(pauses, s))
    assert (seen, pauses) == ([("engine_watch", ValueError)], [FIRST_PAUSE])


async def test_pauses_grow_to_a_limit_and_begin_again_after_a_stable_time(monkeypatch: Any) -> None:
    loop, now = asyncio.get_running_loop(), 0.0
    monkeypatch.setattr(type(loop), "time", lambda _: now, raising=False)
    pauses: list[float] = []

    async def work() -> None:
        nonlocal now
        if len(pauses) == 10:
            now += STABLE_SECONDS
        if len(pauses) == 11:
            return
        raise OSError

    async with reports() as seen:
        await restarting(work, "x", lambda s: _note(pauses, s))
    assert pauses[:8] == [0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE]
    assert pauses[10] == FIRST_PAUSE and len(seen) == 11


async def _note(pauses: list[float], seconds: float) -> None:
    pauses.append(seconds)
