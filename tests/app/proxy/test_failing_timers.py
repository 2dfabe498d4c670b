"""What runs beside an exchange's task raises: the exchange ends with an error, at once, and is not left hanging."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.api.surface import COMMENT
from app.api.thinking_budget import ThoughtWatch
from app.config.config import Timeouts
from app.errors.tree import MannersError
from app.proxy.deadlines import Deadlines
from app.proxy.keepalive import KeepAlive
from app.proxy.response_writer import ResponseWriter
from app.stream.clocks import Clocks
from app.upstream.batching import IOBatch
from tests.app.house import house
from tests.scale import PATIENCE
from tests.script import Hang, Head, Say, thought

BODY = {"type": "http.response.body", "body": b"x", "more_body": True}


async def never(*_: Any) -> Any:
    await asyncio.get_running_loop().create_future()


async def refuse(*_: Any) -> Any:
    raise ZeroDivisionError


async def refuse_late(*_: Any) -> Any:
    await asyncio.sleep(0)
    raise ZeroDivisionError


def broken(*_: Any) -> Any:
    raise ZeroDivisionError


def watching(line: Deadlines, patch: pytest.MonkeyPatch) -> None:
    """The timer that looks for progress."""
    patch.setattr(line, "_overdue", broken)
    line._arm(0, 0)


def keeping_alive(line: Deadlines, patch: pytest.MonkeyPatch) -> None:
    """The timer of the signs of life."""
    KeepAlive(0.001, COMMENT, 0, line, IOBatch(), refuse).follow(Clocks(0), [])


def sending(line: Deadlines, patch: pytest.MonkeyPatch) -> None:
    """The task that writes to a slow reader."""
    ResponseWriter(refuse_late, IOBatch(), line.full, line.free, line.fail).put(BODY)


def reading_on(line: Deadlines, patch: pytest.MonkeyPatch) -> None:
    """What is called when the slow reader has caught up."""
    ResponseWriter(one_step, IOBatch(), line.full, broken, line.fail).put(BODY)


BESIDE: tuple[Callable[[Deadlines, pytest.MonkeyPatch], None], ...] = (
    watching,
    keeping_alive,
    sending,
    reading_on,
)


async def one_step(message: Any) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("start", BESIDE, ids=lambda start: start.__name__)
async def test_what_fails_beside_the_task_ends_it_with_our_error(
    start: Callable[[Deadlines, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exchange() -> None:
        async with asyncio.timeout(PATIENCE), Deadlines(None, Timeouts()) as line, line.attempt():
            start(line, monkeypatch)
            await never()

    with pytest.raises(MannersError) as caught:
        await exchange()
    assert caught.value.code == "internal_error"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_who_waits_for_the_last_byte_hears_that_it_was_not_sent() -> None:
    told: list[BaseException] = []
    outlet = ResponseWriter(refuse_late, IOBatch(), lambda: None, lambda: None, told.append)
    outlet.put(BODY)
    with pytest.raises(ZeroDivisionError):
        await outlet.flushed()
    assert [type(error) for error in told] == [ZeroDivisionError]


async def test_the_timer_of_a_thought_that_fails_ends_the_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ThoughtWatch, "time_is_up", broken)
    async with house(tmp_path, thinking="on", thinking_ms=30) as home:
        home.engine.play(Head(), Say(thought("hm")), Hang())
        answer = await home.ask(stream=True)
    assert (answer.status, answer.error["code"]) == (502, "upstream_malformed")
