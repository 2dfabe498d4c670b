"""What `manners serve` does for all of its connections."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import server
from app.config.config import ConfigError
from tests.app.house import ANYWHERE
from tests.app.house import config as configured

pytestmark = pytest.mark.asyncio

ITERATIONS = 5


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    """No request comes."""


async def _iterations_until_accepted(count: int) -> int:
    """Of the event loop, from when so many connections wait to be accepted until they are."""
    one = server.server(_nothing)
    with server.bind(ANYWHERE, "gateway.listen") as listener:
        address = listener.getsockname()
        serving = asyncio.create_task(one.serve(sockets=[listener]))
        while not one.started:
            await asyncio.sleep(0)
        callers = [socket.create_connection(address) for _ in range(count)]
        iterations = 0
        while len(one.server_state.connections) < count:
            await asyncio.sleep(0)
            iterations += 1
        for caller in callers:
            caller.close()
        one.should_exit = True
        await serving
    return iterations


async def test_many_connections_are_accepted_in_an_iteration() -> None:
    """While something holds the loop for 20 ms in each of its iterations, 50 callers a second would be let in otherwise."""
    assert await _iterations_until_accepted(server.ACCEPTS) <= ITERATIONS < server.ACCEPTS


@pytest.fixture
def _interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_interval")
async def test_the_event_loop_waits_little_for_a_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def bind(*_: object) -> None:
        raise ConfigError("taken")

    for name in ("limit_malloc", "raise_descriptor_limit"):
        monkeypatch.setattr(server, name, lambda *_: None)
    monkeypatch.setattr(server, "bind", bind)
    with pytest.raises(ConfigError):
        await server.serve(configured("http://127.0.0.1:1", tmp_path))
    assert sys.getswitchinterval() == pytest.approx(server.SWITCH_SECONDS)
