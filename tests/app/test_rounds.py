"""Reads of one round are worked off together and written afterwards, in order."""

import asyncio
from typing import Any

import aiohttp

from app.outlet import _Uvicorn
from app.rounds import Round
from app.serve import bind
from app.serve import server as serving
from tests.app.house import ANYWHERE


class Wire:
    """A transport that remembers."""

    def __init__(self, tape: list[str], name: str, closing: bool = False) -> None:
        self._tape, self._name, self._closing = tape, name, closing

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes) -> None:
        self._tape.append(f"write {self._name} {data.decode()}")


async def test_writing_waits_until_every_read_is_worked_off() -> None:
    tape: list[str] = []
    round_, a, b = Round(), Wire(tape, "a"), Wire(tape, "b")

    def work(wire: Any, data: bytes) -> None:
        tape.append(f"work {data.decode()}")
        round_.write(wire, data)

    round_.read(lambda data: work(a, data), b"1")
    round_.read(lambda data: work(b, data), b"2")
    round_.read(lambda data: work(a, data), b"3")
    assert tape == []
    await asyncio.sleep(0)
    assert tape == ["work 1", "work 2", "work 3", "write a 1", "write b 2", "write a 3"]


async def test_outside_of_a_round_writing_is_at_once_and_a_closed_wire_gets_nothing() -> None:
    tape: list[str] = []
    round_ = Round()
    wire: Any = Wire(tape, "a")
    round_.write(wire, b"1")
    assert tape == ["write a 1"]
    closed: Any = Wire(tape, "b", closing=True)
    round_.read(lambda data: round_.write(closed, data), b"2")
    round_.work()
    assert tape == ["write a 1"]


async def test_the_pinned_server_is_written_to_without_its_coroutine() -> None:
    """When this fails, uvicorn has changed: see what its `send` does with a body chunk now."""
    known: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        server = _Uvicorn.of(send, Round())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        known.append(server is not None and server.write(b"short way, "))
        await send({"type": "http.response.body", "body": b"long way"})

    server, listener = serving(app), bind(ANYWHERE, "listen")
    task = asyncio.create_task(server.serve(sockets=[listener]))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with aiohttp.ClientSession() as client, client.get(url) as reply:
        assert await reply.text() == "short way, long way"
    assert known == [True]
    server.should_exit = True
    await task
