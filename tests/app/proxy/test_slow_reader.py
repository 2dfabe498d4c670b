"""A caller who stops reading costs a bounded amount of memory, no other caller, and no place for ever."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.app.house import GatewayFixture, eventually, frames, house, said
from tests.scale import PATIENCE
from tests.script import DONE, Head, Say, finish, text

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIECE = "0123456789abcdef" * 1024  # 16 KiB
PIECES = 2_000  # 31 MiB: more than sockets on a loopback ever take
MOST = 20 << 20  # what the buffers of the kernel on two connections may hold, with room to spare


def script(pieces: int) -> tuple[Head | Say, ...]:
    """A reply much longer than any buffer."""
    return (Head(), *[Say(text(PIECE))] * pieces, Say(finish()), Say(DONE))


@asynccontextmanager
async def dawdler(home: GatewayFixture) -> AsyncIterator[socket.socket]:
    """A caller who asks for a stream and reads nothing, with a small window."""
    body = json.dumps(home.body(stream=True)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += b"connection: close\r\n"
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", int(home.url.rpartition(":")[2])))
        await loop.sock_sendall(sock, b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        yield sock


async def standstill(home: GatewayFixture) -> int:
    """Wait until the engine can say no more; how many bytes it had said by then."""
    seen = await home.engine.request()
    before = -1
    while before != seen.sent:
        before = seen.sent
        await asyncio.sleep(0.1)
    return before


async def read_all(sock: socket.socket) -> bytes:
    """Everything, to the end of the connection."""
    parts = []
    while part := await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def body_of(raw: bytes) -> bytes:
    """The body of a chunked HTTP reply."""
    at, out = raw.index(b"\r\n\r\n") + 4, bytearray()
    while at < len(raw):
        start = raw.index(b"\r\n", at) + 2
        end = start + int(raw[at:start], 16)
        out += raw[start:end]
        at = end + 2
    return bytes(out)


def memory() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow  # megabytes go to a slow caller: 4 s
async def test_a_slow_reader_stops_the_engine_and_nobody_else(tmp_path: Path) -> None:
    """Its engine is paused, others stream on, and when it reads again nothing is missing."""
    async with house(tmp_path, gateway={"max_reply_bytes": 64 << 20}) as home, AsyncExitStack() as stack:
        home.engine.play(*script(PIECES))
        before = memory()
        sock = await stack.enter_async_context(dawdler(home))
        said_by_then = await standstill(home)
        grown = memory() - before
        print(f"engine paused after {said_by_then >> 10} KiB, memory +{grown >> 10} KiB")
        assert said_by_then < MOST
        assert grown < 2 * MOST
        async with asyncio.timeout(PATIENCE):
            for _ in range(20):
                assert (await home.ask(stream=True)).text == "Hello there."
        raw = await read_all(sock)
        assert raw.endswith(b"0\r\n\r\n")
        stream = frames(body_of(raw))
        assert stream[-1] == "[DONE]"
        whole = said(stream) == PIECE * PIECES  # not in the assert: its difference would be 31 MiB
        assert whole


@pytest.mark.parametrize("pieces", [PIECES, 300])
async def test_a_caller_who_never_reads_again_loses_its_place(tmp_path: Path, pieces: int) -> None:
    """It is taken for gone after the idle time, whether the engine was done or not, and is no engine's fault."""
    limits = {"idle": 0.4, "first_token": 5, "total": 60}
    async with house(tmp_path, concurrency=1, queue=0, timeouts=limits) as home, AsyncExitStack() as stack:
        home.engine.play(*script(pieces))
        await stack.enter_async_context(dawdler(home))
        booked = await home.booked()
        assert (booked["outcome"], booked["code"]) == ("client_cancel", None)
        await eventually(home.is_quiet)
        assert (await home.ask(stream=True)).text == "Hello there."
