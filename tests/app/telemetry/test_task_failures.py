"""What fails in the background is logged and counted, wherever it runs."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from app.engines import backend
from app.engines.breaker import Breaker, BreakerState
from deploy.core.tasks import spawn
from deploy.engine.probe import probe
from tests.app.house import GatewayFixture, house
from tests.scale import PATIENCE

SECRET = "my aunt's recipe"


async def broken() -> None:
    raise RecursionError(SECRET)


def callback() -> None:
    raise RecursionError(SECRET)


def a_task_of_ours() -> None:
    spawn(broken(), "engine_watch", "annie")


def a_task_that_nobody_awaits() -> None:
    asyncio.get_running_loop().create_task(broken())
    asyncio.get_running_loop().call_later(0.01, gc.collect)


def a_callback() -> None:
    asyncio.get_running_loop().call_soon(callback)


def a_thread() -> None:
    threading.Thread(target=callback).start()


WAYS = {a_task_of_ours: "engine_watch", a_task_that_nobody_awaits: "other", a_callback: "other", a_thread: "thread"}  # fmt: skip


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("way, name", WAYS.items(), ids=lambda way: getattr(way, "__name__", ""))
async def test_whatever_fails_is_logged_and_counted(home: GatewayFixture, way: Any, name: str) -> None:
    before = (await home.metrics())("manners_task_failures_total", task=name)
    count = sum(line["event"] == "task_failed" for line in home.log.lines)
    way()
    line = await home.log.until(count + 1, "task_failed")
    assert (line["task"], line["error"]) == (name, "RecursionError") and line["where"]
    assert SECRET not in str(line)
    assert (await home.metrics())("manners_task_failures_total", task=name) == before + 1


async def test_an_engine_is_watched_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was, and whatever was thought of the engine: here the probe itself is broken, once."""
    monkeypatch.setattr(backend, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(backend, "LOOK_SECONDS", 0.05)
    calls = 0

    async def breaks_once(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RecursionError
        return await probe(*args, **more)

    monkeypatch.setattr(backend, "probe", breaks_once)
    async with house(tmp_path) as home:
        (watched,) = home.gateway.pool._backends.values()
        watched.breaker = Breaker(BreakerState.SUSPECT)
        line = await home.log.until(1, "task_failed")
        assert line["task"] == "engine_watch"
        async with asyncio.timeout(PATIENCE):
            while calls < 3 or watched.breaker.state is not BreakerState.CLOSED:
                await asyncio.sleep(0.01)
        assert (await home.ask()).text == "Hello there."
