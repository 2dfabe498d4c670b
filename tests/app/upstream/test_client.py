"""Connections to engines: used again when they can be, and never at the caller's cost."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import pytest_asyncio

from app.errors.tree import EngineBroke, EngineDown
from app.upstream.client import DISTRUST_SECONDS, Upstream
from tests.app.house import GatewayFixture, eventually
from tests.scale import PATIENCE
from tests.script import CloseNow, Hang, Head, Raw, Reset, Until, reply, status
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def engine() -> AsyncIterator[ScriptedEngine]:
    """An engine of its own."""
    async with ScriptedEngine() as it:
        yield it


async def ask(upstream: Upstream, url: str, headers: dict[str, str] | None = None) -> bytes:
    """One request and its whole body."""
    return (await upstream.read(url + "/v1/chat/completions", b'{"messages":[]}', headers or {}))[2]


@pytest.mark.parametrize("end", [CloseNow(), Reset()])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_connection_that_dies_as_it_is_used_again_is_no_callers_problem(
    home: GatewayFixture, end: CloseNow | Reset, stream: bool
) -> None:
    """The engine closes an idle connection at the very moment we ask: we ask again, on a new one."""
    all_here = asyncio.Event()
    home.engine.always(Until(all_here), *reply("First."))
    asking = [asyncio.create_task(home.ask()) for _ in range(3)]
    await home.engine.request(3)
    all_here.set()
    for _ in await asyncio.gather(*asking):  # so there are three idle connections
        await home.booked()
    idle = len(home.engine.requests)
    home.engine.play(end)
    home.engine.play(*reply("Again."))
    answer = await home.ask(stream=stream)
    assert (answer.status, answer.text) == (200, "Again.")
    tries = home.engine.requests[idle:]
    assert len(tries) == 2
    assert len({seen.connection for seen in tries}) == 2


@pytest.mark.parametrize("end", [CloseNow(), Reset()])
async def test_a_request_that_an_engine_hangs_up_on_is_sent_twice_at_most(
    engine: ScriptedEngine, end: CloseNow | Reset
) -> None:
    """It may be what makes the engine hang up: it does not come again on every connection that is idle."""
    with closing(Upstream(PATIENCE)) as upstream:
        engine.always(Until(all_here := asyncio.Event()), *status(200, b"{}"))
        asking = [asyncio.create_task(ask(upstream, engine.url)) for _ in range(8)]
        await engine.request(8)
        all_here.set()
        await asyncio.gather(*asking)
        assert len(upstream._idle) == 8
        engine.always(end)
        with pytest.raises(EngineBroke) as caught:
            await ask(upstream, engine.url)
        assert (caught.value.code, len(engine.requests)) == ("upstream_disconnected", 8 + 2)


async def test_a_connection_whose_request_was_not_read_is_not_used_again() -> None:
    """The engine refuses a body before it is here: its rest would stand before the next request."""
    accepted = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
        await until.wait()
        writer.close()

    until = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with closing(Upstream(PATIENCE)) as upstream:
            for count in (1, 2):
                assert await upstream.read(url + "/x", b"x" * (64 << 20), {}) == (413, False, b"{}")
                assert (accepted, len(upstream._idle)) == (count, 0)
        until.set()


@pytest.mark.parametrize(
    "broken",
    [
        (Raw(b"HTTP/1.1 200"), CloseNow()),
        (Raw(b"nonsense\r\n\r\n"), Hang()),
        (Head(), CloseNow()),
        status(500),
    ],
)
async def test_what_an_engine_began_to_answer_is_not_asked_twice(
    home: GatewayFixture, broken: tuple[Raw, ...]
) -> None:
    """On a used connection too: it may have worked for it already."""
    await home.ask()
    home.engine.play(*broken)
    assert (await home.ask(stream=True)).status == 502
    assert len(home.engine.requests) == 2


OTHER = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nSECRET"


@pytest.mark.parametrize(
    "unasked", [OTHER, OTHER[:9], b"\r\n", b""], ids=["a reply", "half a head", "a line end", "its end"]
)
async def test_what_an_idle_connection_said_and_nobody_read_yet_is_no_reply_to_the_next_request(
    unasked: bytes,
) -> None:
    """The next request comes in the very turn of the loop in which an engine's late second reply, or its end, lies in the socket."""
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []

    def serve() -> None:
        wire = listener.accept()[0]
        wire.recv(65_536)
        accepted.append(wire)
        wire.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%d" % (1, len(accepted)))

    with listener:
        upstream = Upstream(PATIENCE)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for number in (b"1", b"2"):
            serving = asyncio.get_running_loop().run_in_executor(None, serve)
            if accepted:
                accepted[0].sendall(unasked)
                accepted[0].shutdown(socket.SHUT_WR)
            assert await ask(upstream, url) == number  # the loop reads nothing before the request is sent
            await serving
        upstream.close()
        for wire in accepted:
            wire.close()


FIRST = {
    "of stated length": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1",
    "in chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
    "with trailers": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n1\r\n0\r\nx: y\r\n\r\n",
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("cut", [0, 1, 9, len(OTHER)], ids=["nothing", "a letter", "half a head", "a reply"])
@pytest.mark.parametrize("apart", [False, True], ids=["in the same read", "in the next read"])
async def test_what_comes_behind_a_reply_ends_the_connection(first: str, cut: int, apart: bool) -> None:
    """Whether its rest comes then or on the next caller's time."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(PATIENCE)
    asked, read = 0, threading.Event()

    def serve(replies: tuple[bytes, ...]) -> None:
        nonlocal asked
        with listener.accept()[0] as wire:
            for reply in replies:
                if not wire.recv(65_536):
                    return
                asked += 1
                wire.sendall(FIRST[first] if apart else FIRST[first] + reply)
                if apart:
                    read.wait(PATIENCE)
                    wire.sendall(reply)

    with listener, closing(Upstream(PATIENCE)) as upstream:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.get_running_loop().run_in_executor(None, serve, (OTHER[:cut], OTHER[cut:]))
        assert await ask(upstream, url) == b"1"
        read.set()
        if apart and cut:
            await eventually(lambda: not (upstream._idle and upstream._idle[-1].is_reusable))
        if not cut:
            assert await ask(upstream, url) == b"1"
        else:
            again = asyncio.get_running_loop().run_in_executor(None, serve, (b"",))
            assert await ask(upstream, url) == b"1"
            await again
        upstream.close()
        await serving
    assert asked == 2


@pytest.mark.parametrize("when", ["in the same read", "idle"])
async def test_an_engine_that_once_said_too_much_gets_a_connection_for_each_request(
    engine: ScriptedEngine, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next second reply may come when the next request is on its way. After a while it is trusted again."""
    clock = [1000.0]
    monkeypatch.setattr("app.upstream.client.time.monotonic", lambda: clock[0])
    said = asyncio.Event()
    whole = status(200, b"{}")
    with closing(Upstream(PATIENCE)) as upstream:
        engine.always(*whole)
        for _ in range(3):
            await ask(upstream, engine.url)
        assert len({seen.connection for seen in engine.requests}) == 1
        first = FIRST["of stated length"]
        engine.play(*((Raw(first), Until(said), Raw(OTHER)) if when == "idle" else (Raw(first + OTHER),)))
        assert await ask(upstream, engine.url) == b"1"
        said.set()
        await eventually(lambda: not upstream._idle)
        before = engine.accepted
        for _ in range(3):
            await ask(upstream, engine.url)
        assert engine.accepted - before == 3
        clock[0] += DISTRUST_SECONDS
        for _ in range(3):
            await ask(upstream, engine.url)
        assert engine.accepted - before == 4


async def test_an_engine_that_speaks_before_it_is_asked_is_not_asked() -> None:
    """What lies in the socket of a new connection is no reply to a request, either."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(PATIENCE)
    accepted: list[socket.socket] = []

    async def connect(*args: Any, **more: Any) -> Any:
        made = await create(*args, **more)
        accepted.append(listener.accept()[0])
        accepted[-1].sendall(OTHER)
        return made

    loop = asyncio.get_running_loop()
    create: Any = loop.create_connection
    with (
        listener,
        closing(Upstream(PATIENCE)) as upstream,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(loop, "create_connection", connect)
        with pytest.raises(EngineBroke):
            await ask(upstream, f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert not upstream._idle and len(accepted) == 1
        for wire in accepted:
            wire.close()


@pytest.fixture
def full() -> Iterator[int]:
    """A port whose queue of connections is full: who connects hears nothing."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_an_engine_too_busy_to_accept_is_given_up_after_the_connect_timeout(full: int) -> None:
    """A host that answers nothing must not cost the whole patience of a caller."""
    upstream = Upstream(0.2)
    start = time.perf_counter()
    with pytest.raises(EngineDown) as caught:
        await ask(upstream, f"http://127.0.0.1:{full}")
    assert caught.value.code == "connect_timeout"
    assert time.perf_counter() - start >= 0.19


async def test_an_engine_is_not_given_up_because_we_had_no_time_ourselves(engine: ScriptedEngine) -> None:
    """The timer and the connection are found at once by a loop that was held up."""
    engine.always(*reply("Hello."))
    upstream = Upstream(0.05)
    asking = asyncio.create_task(ask(upstream, engine.url))
    await asyncio.sleep(0)  # it connects
    time.sleep(0.3)
    assert b"Hello." in await asking
    upstream.close()


async def test_headers_that_could_split_the_request_are_not_sent(engine: ScriptedEngine) -> None:
    """Whatever a caller wrote into its trace."""
    engine.always(*status(200, {}))
    await ask(Upstream(1.0), engine.url, {"traceparent": "00-ab\r\nx-evil: 1", "x-request-id": "one"})
    seen = await engine.request()
    assert "x-evil" not in seen.headers and "traceparent" not in seen.headers
    assert seen.headers["x-request-id"] == "one"


async def test_an_idle_connection_is_dropped_before_its_engine_does(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.upstream.client.KEEP_ALIVE_SECONDS", 0.0)
    engine.always(*status(200, {}))
    with closing(Upstream(PATIENCE)) as upstream:
        for _ in range(2):
            await ask(upstream, engine.url)
    assert engine.accepted == 2
