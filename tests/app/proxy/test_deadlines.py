"""Deadlines: each has its own moment, its own code, and frees the engine when it passes."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import pytest_asyncio

from app.config.config import Timeouts
from app.errors.tree import EngineTimeout
from app.proxy.deadlines import ClientGone, Deadlines
from tests.app.house import House, config, house, run, said
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    Hang,
    Head,
    Repeat,
    Say,
    Step,
    Tell,
    Wait,
    chunk,
    finish,
    role,
    text,
    thought,
    usage,
)
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST, IDLE, TOTAL = 0.3, 0.15, 0.6  # seconds; no test says by when they must have passed

ENDS = (Say(text("lo")), Say(finish()), Say(DONE))
PING = b": ping\n\n"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A gateway of little patience."""
    async with house(tmp_path_factory.mktemp("state"), timeouts={"first_token": FIRST, "idle": IDLE}) as it:
        yield it


def often(data: bytes) -> tuple[Step, ...]:
    """The same again and again, faster than any deadline."""
    return tuple(step for _ in range(40) for step in (Say(data), Wait(0.05)))


NO_TOKEN: dict[str, tuple[Step, ...]] = {
    "no head": (Hang(),),
    "a head only": (Head(), Hang()),
    "a role only": (Head(), Say(role()), Hang()),
    "pings": (Head(), *often(PING)),
    "roles": (Head(), *often(role())),
    "empty deltas": (Head(), *often(chunk({"content": ""}))),
    "usage": (Head(), *often(usage(0))),
    "half a body": (Head(200, "application/json", "length", 99), Say(b"{"), Hang()),
    "half an error": (Head(500, "application/json", "length", 99), Say(b"{"), Hang()),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", NO_TOKEN)
async def test_an_engine_without_a_token_is_given_up_in_time(home: House, name: str, stream: bool) -> None:
    """Pings, roles and empty deltas buy no time; the caller gets a 504 and the engine is told."""
    home.engine.play(*NO_TOKEN[name])
    start = time.perf_counter()
    answer = await home.ask(stream=stream)
    took = time.perf_counter() - start
    assert (answer.status, answer.error["code"]) == (504, "first_token_timeout")
    assert answer.error["type"] == "upstream_error"
    assert answer.headers["x-manners-engine"] == "scripted"
    assert took >= FIRST
    seen = await home.engine.request()
    await asyncio.wait_for(seen.gone.wait(), PATIENCE)
    booked = await home.booked()
    assert (booked["outcome"], booked["code"]) == ("timeout", "first_token_timeout")


SILENT: dict[str, tuple[Step, ...]] = {
    "silence": (Hang(),),
    "pings": often(PING),
    "empty deltas": often(chunk({"content": ""})),
    "no end after the finish": (Say(finish()), Hang()),
}


@pytest.mark.parametrize("name", SILENT)
async def test_an_engine_that_falls_silent_is_given_up_in_time(home: House, name: str) -> None:
    """What came is kept and one frame tells the fault; the deadline counts from the last token."""
    home.engine.play(Head(), Wait(0.1), Say(text("One")), Say(text(" two"), "last"), *SILENT[name])
    *chunks, last = (await home.ask(stream=True)).frames
    ended = time.perf_counter()
    assert said(chunks) == "One two"
    assert last["error"]["code"] == "idle_timeout"
    seen = await home.engine.request()
    assert ended - seen.marks["last"] >= IDLE - 0.01
    await asyncio.wait_for(seen.gone.wait(), PATIENCE)
    assert (await home.booked())["outcome"] == "timeout"


async def test_a_whole_reply_that_falls_silent_is_a_504(home: House) -> None:
    """Half of it is not passed for all of it."""
    home.engine.play(Head(), Say(text("One")), Hang())
    answer = await home.ask(stream=False)
    assert (answer.status, answer.error["code"]) == (504, "idle_timeout")


@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_never_ends_is_stopped(tmp_path: Path, stream: bool) -> None:
    """Progress does not extend the total."""
    async with house(tmp_path, timeouts={"total": TOTAL}) as home:
        home.engine.play(Head(), Repeat(text("and "), 0.05, asyncio.Event()))
        start = time.perf_counter()
        answer = await home.ask(stream=stream)
        assert time.perf_counter() - start >= TOTAL
    error = answer.frames[-1]["error"] if stream else answer.error
    assert error["code"] == "total_timeout"
    assert answer.status == (200 if stream else 504)


async def test_thoughts_are_progress_though_the_caller_sees_nothing(home: House) -> None:
    """An engine that thinks is alive: neither first-token nor idle deadline ends it."""
    words = [step for _ in range(9) for step in (Say(thought("hm ")), Wait(0.05))]
    home.engine.play(Head(), *words, Say(text("Yes.")), Say(finish()), Say(DONE))
    answer = await home.ask(stream=True)
    assert answer.text == "Yes."
    assert answer.frames[-1] == "[DONE]"


async def test_the_next_request_has_all_its_time(home: House) -> None:
    """Deadlines of one exchange are not those of the next on the same connection."""
    slow = (Head(), Wait(FIRST / 2), Say(text("One.")), Say(finish()), Say(DONE))
    for _ in range(3):
        home.engine.play(*slow)
        assert (await home.ask(stream=True)).text == "One."


async def for_ever() -> MutableMapping[str, Any]:
    """The messages of a caller who stays and says nothing."""
    future: asyncio.Future[MutableMapping[str, Any]] = asyncio.get_running_loop().create_future()
    return await future


async def test_a_caller_who_takes_no_last_byte_is_not_waited_for() -> None:
    """The engine is done and its place must be: the caller is taken for gone, and nobody blamed."""

    async def blocked() -> None:
        limits = Timeouts(first_token=9, idle=0.1, total=9)
        async with Deadlines(for_ever, limits) as line, line.attempt():
            line.full()
            line.over()
            await for_ever()

    start = time.perf_counter()
    with pytest.raises(ClientGone):
        await blocked()
    assert time.perf_counter() - start >= 0.1


async def test_a_caller_who_reads_again_in_time_costs_the_engine_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The idle time begins anew when the caller has caught up."""
    clock = Mock(perf_counter=Mock(return_value=1000.0))
    monkeypatch.setattr("app.proxy.deadlines.time", clock)
    limits = Timeouts(first_token=900, idle=600, total=9000)

    def passes(line: Deadlines, seconds: float) -> None:
        clock.perf_counter.return_value += seconds
        line._look()

    async def in_time(line: Deadlines, reads: float) -> None:
        async with line, line.attempt():
            line.progress = clock.perf_counter()
            for _ in range(2):
                line.full()
                passes(line, 400)
                line.free()
                passes(line, 200)
                passes(line, reads - 200)
            await asyncio.sleep(0)

    await in_time(Deadlines(for_ever, limits), 400)
    with pytest.raises(EngineTimeout, match="fell silent"):
        await in_time(Deadlines(for_ever, limits), 600)


async def test_a_caller_who_leaves_as_a_deadline_passes_is_not_forgotten() -> None:
    """The next engine is not asked for somebody who is gone."""
    leaves: asyncio.Future[MutableMapping[str, Any]] = asyncio.get_running_loop().create_future()

    async def receive() -> MutableMapping[str, Any]:
        return await leaves

    async def two_engines() -> None:
        async with Deadlines(receive, Timeouts(first_token=0.05)) as line:
            with contextlib.suppress(EngineTimeout):
                async with line.attempt():
                    await asyncio.sleep(0)  # the watcher waits
                    time.sleep(0.06)  # the deadline and the caller's leaving are seen at one moment
                    leaves.set_result({"type": "http.disconnect"})
                    line._look()
                    await asyncio.sleep(5)
            async with line.attempt():
                await asyncio.sleep(5)

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ClientGone):
            await two_engines()


async def test_an_engine_that_takes_no_connections_is_down_at_once(tmp_path: Path) -> None:
    """Refused: a 503 that says when to come again."""
    async with house(tmp_path) as home:
        home.engine._server.close()
        home.engine.drop_connections()
        answer = await home.ask(stream=True)
        assert (answer.status, answer.error["code"]) == (503, "connect_failed")
        assert answer.headers["retry-after"] == "1"
        assert (await home.booked())["outcome"] == "upstream_error"
        assert home.is_quiet()


async def test_a_gateway_whose_engine_never_came_up_says_so(tmp_path: Path) -> None:
    """No engine is a 503 of its own, on /readyz too; the process lives."""
    nowhere = config("http://127.0.0.1:9", tmp_path)
    async with ScriptedEngine() as engine, run(nowhere, engine, ready=False) as home:
        answer = await home.ask()
        assert (answer.status, answer.error["code"]) == (503, "no_engine")
        assert answer.headers["x-manners-engine"] == "none"
        assert (await home.get(home.url + "/readyz")).status == 503
        assert (await home.get(home.url + "/health")).status == 503
        assert (await home.get(home.url + "/healthz")).status == 200


async def test_no_engine_is_blamed_for_time_that_our_own_loop_did_not_get(home: House) -> None:
    """The loop stands still for longer than the engine may be silent; what it said meanwhile is read first."""
    stands = asyncio.Event()
    home.engine.play(Head(), Say(role()), Say(text("Hel")), Tell(stands), Wait(0.05), *ENDS)
    asking = asyncio.create_task(home.ask(stream=True))
    await stands.wait()
    await asyncio.sleep(0.02)
    time.sleep(IDLE + 0.5)
    assert (await asking).text == "Hello"
