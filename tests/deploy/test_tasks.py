"""No background task fails unseen, and what should go on is started again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deploy.core.tasks import FIRST_PAUSE, LONGEST_PAUSE, STABLE_SECONDS, TASK, restarting

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
