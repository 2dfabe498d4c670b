"""Deadlines: each has its own moment, its own code, and frees the engine when it passes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from app.config.config import Timeouts
from app.errors.tree import EngineTimeout, MannersError
from app.proxy.deadlines import ClientGone, Deadlines
from tests.app.house import GatewayFixture, config, eventually, house, run, said
from tests.app.proxy.caller import Caller, Cycle, deadlines
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    Hang,
    Head,
    Repeat,
    Say,
    Step,
    Until,
    chunk,
    finish,
    role,
    text,
)
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST, IDLE, TOTAL = 300.0, 200.0, 900.0  # seconds of `Clock`

ENDS = (Say(text("lo")), Say(finish()), Say(DONE))
PING = b": ping\n\n"


class Clock:
    """`time.perf_counter`, and as much more as a test lets pass: no deadline passes by itself."""

    def __init__(self) -> None:
        self._real, self.ahead = time.perf_counter, 0.0

    def __call__(self) -> float:
        return self._real() + self.ahead

    async def passes(self, home: GatewayFixture, seconds: float) -> None:
        """So much time, which the deadlines of all exchanges look at; what they end comes to its end later."""
        self.ahead += seconds
        for line in tuple(home.gateway.proxy._serving):
            line._look()
        await asyncio.sleep(0)

    async def token(self, home: GatewayFixture) -> None:
        """Wait until the one exchange has read a token that came at this clock's time or later."""
        now = self()
        await eventually(lambda: [line for line in home.gateway.proxy._serving if line.progress >= now])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    it = Clock()
    monkeypatch.setattr(time, "perf_counter", it)
    return it


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway of some patience."""
    limits = {"first_token": FIRST, "idle": IDLE, "total": TOTAL}
    async with house(tmp_path_factory.mktemp("state"), timeouts=limits) as it:
        yield it


def often(data: bytes) -> Repeat:
    """The same again and again."""
    return Repeat(data, 0.01, asyncio.Event())


NO_TOKEN: dict[str, tuple[Step, ...]] = {
    "no head": (Hang(),),
    "a role only": (Head(), Say(role()), Hang()),
    "pings": (Head(), often(PING)),
    "empty deltas": (Head(), often(chunk({"content": ""}))),
    "progress": (Head(), often(chunk({}, prompt_progress={"processed": 1}))),
    "half a body": (Head(200, "application/json", "length", 99), Say(b"{"), Hang()),
    "half an error": (Head(500, "application/json", "length", 99), Say(b"{"), Hang()),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", NO_TOKEN)
async def test_an_engine_without_a_token_is_given_up_in_time(
    home: GatewayFixture, clock: Clock, name: str, stream: bool
) -> None:
    """Pings, roles and empty deltas buy no time; the caller gets a 504 and the engine is told."""
    home.engine.play(*NO_TOKEN[name])
    asking = asyncio.create_task(home.ask(stream=stream))
    seen = await home.engine.request()
    said_often = [5 * len(step.data) for step in NO_TOKEN[name] if isinstance(step, Repeat)]
    await eventually(lambda: seen.sent >= sum(said_often))
    await clock.passes(home, FIRST / 2)
    assert not asking.done()
    await clock.passes(home, FIRST / 2)
    answer = await asking
    assert (answer.status, answer.error["code"]) == (504, "first_token_timeout")
    assert answer.error["type"] == "upstream_error"
    assert answer.headers["x-manners-engine"] == "scripted"
    await asyncio.wait_for(seen.gone.wait(), PATIENCE)
    booked = await home.booked()
    assert (booked["outcome"], booked["code"]) == ("timeout", "first_token_timeout")


SILENT: dict[str, tuple[Step, ...]] = {
    "silence": (Hang(),),
    "pings": (often(PING),),
    "empty deltas": (often(chunk({"content": ""})),),
    "no end after the finish": (Say(finish()), Hang()),
}


@pytest.mark.parametrize("name", SILENT)
async def test_an_engine_that_falls_silent_is_given_up_in_time(
    home: GatewayFixture, clock: Clock, name: str
) -> None:
    """What came is kept and one frame tells the fault; the deadline counts from the last token."""
    more = asyncio.Event()
    home.engine.play(Head(), Say(text("One")), Until(more), Say(text(" two")), *SILENT[name])
    asking = asyncio.create_task(home.ask(stream=True))
    seen = await home.engine.request()
    await eventually(lambda: [line for line in home.gateway.proxy._serving if line.progress])
    await clock.passes(home, IDLE / 2)
    more.set()
    await clock.token(home)
    await clock.passes(home, 0.7 * IDLE)
    assert not asking.done()
    await clock.passes(home, 0.3 * IDLE)
    *chunks, last = (await asking).frames
    assert said(chunks) == "One two"
    assert last["error"]["code"] == "idle_timeout"
    await asyncio.wait_for(seen.gone.wait(), PATIENCE)
    assert (await home.booked())["outcome"] == "timeout"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_never_ends_is_stopped(home: GatewayFixture, clock: Clock, stream: bool) -> None:
    """Progress does not extend the total."""
    home.engine.play(Head(), often(text("and ")))
    asking = asyncio.create_task(home.ask(stream=stream))
    await eventually(lambda: [line for line in home.gateway.proxy._serving if line.progress])
    for _ in range(5):
        await clock.passes(home, TOTAL / 6)
        await clock.token(home)
    assert not asking.done()
    await clock.passes(home, TOTAL / 6)
    answer = await asking
    error = answer.frames[-1]["error"] if stream else answer.error
    assert error["code"] == "total_timeout"
    assert answer.status == (200 if stream else 504)


async def test_a_caller_who_takes_no_last_byte_is_not_waited_for() -> None:
    """The engine is done and its place must be: the caller is taken for gone, and nobody blamed."""

    async def blocked() -> None:
        async with deadlines(Timeouts(first_token=9, idle=0.1, total=9)) as line:
            line.begin()
            line.full()
            line.over()
            await asyncio.sleep(PATIENCE)

    with pytest.raises(ClientGone):
        await blocked()


async def test_a_caller_who_reads_again_in_time_costs_the_engine_nothing(clock: Clock) -> None:
    """The idle time begins anew when the caller has caught up."""
    limits = Timeouts(first_token=FIRST, idle=IDLE, total=10 * TOTAL)

    async def reads(*pauses: float) -> None:
        async with deadlines(limits) as line:
            line.begin()
            line.progress = clock()
            for _ in range(2):
                line.full()
                clock.ahead += 0.6 * IDLE
                line.free()
                for pause in pauses:
                    clock.ahead += pause
                    line._look()
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                raise line.late() or ValueError from None

    await reads(0.6 * IDLE)
    with pytest.raises(EngineTimeout, match="fell silent"):
        await reads(0.6 * IDLE, 0.4 * IDLE)


async def test_a_caller_who_leaves_as_a_deadline_passes_is_not_forgotten() -> None:
    """The next engine is not asked for somebody who is gone."""
    cycle = Cycle()

    async def two_engines() -> None:
        async with deadlines(Timeouts(first_token=FIRST, idle=FIRST), cycle) as line:
            line.begin()
            try:
                line._end(
                    EngineTimeout("late")
                )  # the deadline and the caller's leaving are seen at one moment
                cycle.on_lost()
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                assert line.late()
            line.begin()
            await asyncio.sleep(5)

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ClientGone):
            await two_engines()


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


async def test_no_engine_is_blamed_for_time_that_our_own_loop_did_not_get(
    home: GatewayFixture, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop stood still for longer than the engine may be silent; what it said meanwhile is read first."""
    monkeypatch.setattr("app.proxy.deadlines.GRACE_SECONDS", PATIENCE)
    go = asyncio.Event()
    home.engine.play(Head(), Say(role()), Say(text("Hel")), Until(go), *ENDS)
    asking = asyncio.create_task(home.ask(stream=True))
    await eventually(lambda: [line for line in home.gateway.proxy._serving if line.progress])
    go.set()
    await clock.passes(home, IDLE + 10)
    assert (await asking).text == "Hello"


def the_timer(line: Deadlines, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(line, "_due", broken)
    asyncio.get_running_loop().call_soon(line._look)


def the_end_of_a_pause(line: Deadlines, patch: pytest.MonkeyPatch) -> None:
    caller = Caller(line)
    caller.flow.pause_writing()
    caller.writer.write(b"x")
    patch.setattr(line, "free", broken)
    caller.flow.resume_writing()


def broken(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("start", [the_timer, the_end_of_a_pause])
async def test_what_fails_beside_the_task_ends_it_with_our_error(
    start: Callable[[Deadlines, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and it is not left hanging."""

    async def exchange() -> None:
        async with asyncio.timeout(PATIENCE), deadlines() as line:
            line.begin()
            start(line, monkeypatch)
            await asyncio.get_running_loop().create_future()

    with pytest.raises(MannersError) as caught:
        await exchange()
    assert caught.value.code == "internal_error"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
