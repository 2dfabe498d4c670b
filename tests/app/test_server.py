"""What `manners serve` does for all of its connections."""

import asyncio
import socket
from typing import Any

import pytest

from app import server
from tests.app.house import ANYWHERE

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
