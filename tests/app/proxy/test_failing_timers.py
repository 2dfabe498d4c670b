"""What runs beside an exchange's task raises: the exchange ends with an error, at once, and is not left hanging."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.errors.tree import MannersError
from app.proxy.deadlines import Deadlines
from tests.app.proxy.caller import Caller, deadlines
from tests.scale import PATIENCE


async def never(*_: Any) -> Any:
    await asyncio.get_running_loop().create_future()


def broken(*_: Any) -> Any:
    raise ZeroDivisionError


def watching(line: Deadlines, patch: pytest.MonkeyPatch) -> None:
    """The timer that looks for progress."""
    patch.setattr(line, "_due", broken)
    asyncio.get_running_loop().call_soon(line._look)


def reading_on(line: Deadlines, patch: pytest.MonkeyPatch) -> None:
    """What is called when the slow reader has caught up."""
    caller = Caller(line)
    caller.flow.pause_writing()
    caller.writer.write(b"x")
    patch.setattr(line, "free", broken)
    caller.flow.resume_writing()


BESIDE: tuple[Callable[[Deadlines, pytest.MonkeyPatch], None], ...] = (watching, reading_on)


@pytest.mark.parametrize("start", BESIDE, ids=lambda start: start.__name__)
async def test_what_fails_beside_the_task_ends_it_with_our_error(
    start: Callable[[Deadlines, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exchange() -> None:
        async with asyncio.timeout(PATIENCE), deadlines() as line:
            line.begin()
            start(line, monkeypatch)
            await never()

    with pytest.raises(MannersError) as caught:
        await exchange()
    assert caught.value.code == "internal_error"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
