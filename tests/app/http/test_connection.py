"""A connection's memory and patience: the real protocol over a transport that remembers."""

import asyncio
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from app.http.connection import (
    DEFAULT_LIMITS,
    MAX_HEADERS,
    ONCE,
    Connection,
    ConnectionLimits,
)
from app.server import raise_descriptor_limit
from app.wiring import set_limits
from tests.app.house import config

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
ONE_READ = 256 << 10
"""What uvloop reads at most at once."""


class Transport(asyncio.Transport):
    """Remembers what was written; `waiting` is how much of it the peer has not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.out = b""
        self.paused = self.closed = self.aborted = False
        self.waiting = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.out += bytes(data)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return self.waiting


class Server:
    """Makes connections to one application, which notes what it was asked."""

    def __init__(self, limits: ConnectionLimits = DEFAULT_LIMITS) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.counted: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.state = ServerState()
        self._config = uvicorn.Config(
            self._app, interface="asgi3", log_config=None, ws="none", lifespan="off", proxy_headers=False
        )
        self._limits = limits

    async def _app(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        self.asked.append((scope["method"], scope["path"], body))
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    def connect(self) -> tuple[Connection, Transport]:
        """A connection that was just opened."""
        made = Connection(
            config=self._config,
            server_state=self.state,
            app_state={},
            limits=self._limits,
            count=self.counted.append,
        )
        transport = Transport()
        made.connection_made(transport)
        return made, transport


async def settle() -> None:
    """Until nothing more happens by itself."""
    for _ in range(50):
        await asyncio.sleep(0)


def code(transport: Transport) -> str:
    """Of the error that ended the connection."""
    return str(json.loads(transport.out.rpartition(b"\r\n\r\n")[2])["error"]["code"])


@pytest.mark.parametrize("ahead", [GET, GET * 1000, b"GET /hea"], ids=["one", "many", "half of one"])
async def test_who_asks_before_the_reply_gets_that_reply_and_the_end(ahead: bytes) -> None:
    """No task is queued and nothing of the further requests is kept."""
    server = Server()
    server.go_on.clear()
    made, transport = server.connect()
    made.data_received(GET + ahead)
    for _ in range(50):
        made.data_received(GET * 1000)
        await asyncio.sleep(0)
    assert (len(server.state.tasks), len(made.pipeline), transport.closed) == (1, 0, False)
    server.go_on.set()
    await settle()
    assert (transport.out.count(b"200 OK"), transport.closed, server.counted) == (1, True, [])


CHUNKED = b"POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUESTS = (
    b"\r\nPOST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n\r\n\r\nGET /x\r\n",
    CHUNKED + b"4\r\n\r\n\r\n\r\n2;x=y\r\nhi\r\n0\r\nTrailer: z\r\n\r\n",
    b"GET /g HTTP/1.1\r\nHost: localhost\r\n\r\n",
    CHUNKED + b"0\r\n\r\n",
    CHUNKED + b"8000\r\n" + b"y" * 0x8000 + b"\r\n0\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    b"GET /end HTTP/1.1\r\nHost: localhost\r\n\r\n",
)
ASKED = [
    ("POST", "/a", b"\r\n\r\nGET /x\r\n"),
    ("POST", "/c", b"\r\n\r\nhi"),
    ("GET", "/g", b""),
    ("POST", "/c", b""),
    ("POST", "/c", b"y" * 0x8000),
    ("GET", "/end", b""),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 10_000])
async def test_requests_are_the_same_in_pieces_of_any_size(size: int) -> None:
    """Blank lines inside bodies and across reads end nothing."""
    server = Server()
    made, _ = server.connect()
    for request in REQUESTS:
        for at in range(0, len(request), size):
            made.data_received(request[at : at + size])
        await settle()
    assert server.asked == ASKED


HEADS = {
    "a head that does not end": b"GET / HTTP/1.1\r\nx: " + b"y" * ONE_READ,
    "a path that does not end": b"GET /" + b"y" * ONE_READ,
    "many headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * MAX_HEADERS + b"\r\n",
    "endless trailers": CHUNKED + b"0\r\n" + b"a: b\r\n" * 40_000,
    "one endless trailer": CHUNKED + b"0\r\na: " + b"b" * ONE_READ,
    "an endless chunk extension": CHUNKED + b"1;" + b"x" * ONE_READ,
    "an extension on each chunk": CHUNKED + (b"1;" + b"x" * 300 + b"\r\nx\r\n") * 800,
    "many chunks of one byte": CHUNKED + b"1\r\nx\r\n" * 10_000,
    "a head that comes at once": GET[:-2] + b"x: " + b"y" * 40_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", HEADS)
async def test_what_is_no_data_is_bounded(name: str) -> None:
    """431, and counted."""
    server = Server()
    made, transport = server.connect()
    made.data_received(HEADS[name])
    await settle()
    assert transport.closed and code(transport) == "headers_too_large"
    assert server.counted == ["headers_too_large"] and not server.asked


async def test_a_chunked_body_in_small_parts_is_read() -> None:
    """Each byte of data pays for one beside it, so a body of any size may come in chunks of some bytes."""
    server = Server()
    made, _ = server.connect()
    made.data_received(CHUNKED)
    for _ in range(100):
        made.data_received(b"8\r\n12345678\r\n" * 200)
        await settle()
    made.data_received(b"0\r\n\r\n")
    await settle()
    assert server.asked == [("POST", "/c", b"12345678" * 20_000)]


async def test_one_connection_too_many_is_told_and_closed() -> None:
    """503, and those that were there are served."""
    server = Server(ConnectionLimits(connections=2))
    first, second, third = (server.connect() for _ in range(3))
    assert third[1].closed and code(third[1]) == "too_many_connections"
    assert b"HTTP/1.1 503 " in third[1].out and b"retry-after: 1\r\n" in third[1].out
    for made, transport in (first, second):
        made.data_received(GET)
        await settle()
        assert transport.out.startswith(b"HTTP/1.1 200 ")
    third[0].connection_lost(None)
    first[0].connection_lost(None)
    assert not server.connect()[1].closed


@pytest.mark.parametrize("closing", [False, True], ids=["open", "closing"])
async def test_a_peer_that_takes_nothing_is_cut_off(closing: bool) -> None:
    """Progress buys time, however little; a connection that cannot finish closing is no exception."""
    server = Server(ConnectionLimits(write_seconds=30))
    made, transport = server.connect()
    transport.closed = closing
    transport.waiting = 1000
    for now in (0, 20):
        made.sweep(now)
    transport.waiting = 999  # it has taken a byte
    for now in (29, 58):
        made.sweep(now)
    before = transport.aborted
    made.sweep(59)
    assert not before and transport.aborted and server.counted == ["reader_timeout"]


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "request_, body",
    [
        (GET[:-2] + UPGRADE + b"\r\n", b""),
        (GET[:-2] + UPGRADE.replace(b"h2c", b"websocket") + b"\r\n", b""),
        (POST + b"Content-Length: 5\r\n\r\nhello", b"hello"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
    ],
)
async def test_a_wish_to_upgrade_is_ignored_and_the_body_is_not(
    request_: bytes, body: bytes, size: int
) -> None:
    """Java's client asks for h2c with each request; the next one comes on the same connection."""
    server = Server()
    made, transport = server.connect()
    for sent in (request_, GET):
        for at in range(0, len(sent), size):
            made.data_received(sent[at : at + size])
        await settle()
    assert [said for _, _, said in server.asked] == [body, b""] and not transport.closed


def get(*headers: bytes, target: bytes = b"/", version: bytes = b"HTTP/1.1") -> bytes:
    return b"\r\n".join([b"GET %b %b" % (target, version), *headers, b"", b""])


PLAIN = {
    "none in HTTP/1.0": get(version=b"HTTP/1.0"),
    "of a whole target": get(b"Host: a", target=b"http://A:80/"),
    "a name": get(b"Host: gateway_1.example:8081"),
    "an address": get(b"Host: [::1]:8080"),
    "other headers twice": get(b"Host: a", b"Accept: c", b"Accept: d"),
    "trailers": CHUNKED + b"0\r\norigin: x\r\norigin: y\r\n\r\n",
}
INVALID = {
    "a coding before chunked": get(b"Host: a", b"Transfer-Encoding: gzip, chunked") + b"2\r\n{}\r\n0\r\n\r\n",
    "a coding behind chunked": get(b"Host: a", b"Transfer-Encoding: chunked, gzip"),
    "chunks in HTTP/1.0": get(b"Host: a", b"Transfer-Encoding: chunked", version=b"HTTP/1.0"),
    "no host": get(),
    "two hosts": get(b"Host: a", b"Host: b"),
    "an empty host": get(b"Host:"),
    "a user in the host": get(b"Host: localhost@evil.example"),
    "a host that is not ASCII": get(b"Host: \xff"),
    "a host too long": get(b"Host: " + b"a" * 300),
    "a port that is none": get(b"Host: a:b"),
    "half an address": get(b"Host: [::1"),
    "an address without brackets": get(b"Host: ::1"),
}


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("name", INVALID)
async def test_what_is_not_plain_http_is_refused(name: str, size: int) -> None:
    """400, and nothing behind it is a request."""
    server = Server()
    made, transport = server.connect()
    for sent in (GET, b"\r\n" + INVALID[name] + GET):
        for at in range(0, len(sent), size):
            made.data_received(sent[at : at + size])
            await settle()
    assert len(server.asked) == 1
    assert transport.closed and code(transport) == "invalid_http"


@pytest.mark.parametrize("name", PLAIN)
async def test_what_is_plain_http_is_served(name: str) -> None:
    """RFC 9112, 3.2, and RFC 9110, 5.3."""
    server = Server()
    made, _ = server.connect()
    made.data_received(PLAIN[name])
    await settle()
    assert len(server.asked) == 1


@pytest.mark.parametrize("values", [(b"a", b"b"), (b"a", b"a"), (b"a", b""), (b"a", b"a", b"a")])
@pytest.mark.parametrize("upgrade", [b"", b"Connection: upgrade\r\nUpgrade: websocket\r\n"])
@pytest.mark.parametrize("name", sorted(ONCE))
async def test_a_header_that_decides_comes_once(
    name: bytes, upgrade: bytes, values: tuple[bytes, ...]
) -> None:
    """Neither the first nor the last one is believed."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n%b" % upgrade
    for value, spelled in zip(values, (name, name.title(), name.upper()), strict=False):
        head += b"%b: %b\r\nx-other: 1\r\n" % (spelled, value)
    server = Server()
    made, transport = server.connect()
    made.data_received(head + b"\r\n")
    await settle()
    assert not server.asked and transport.closed and code(transport) == "duplicate_header"


async def test_there_are_descriptors_for_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soft limit goes up as far as the hard one; it never goes down."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    for soft, hard in [(1024, 4096), (1024, 2000), (4096, 4096), (1024, resource.RLIM_INFINITY)]:
        monkeypatch.setattr(resource, "getrlimit", lambda which, now=(soft, hard): now)
        raise_descriptor_limit(2560)
    assert asked == [(2560, 4096), (2000, 2000), (2560, resource.RLIM_INFINITY)]


async def test_a_reader_is_given_what_the_most_patient_model_gives(tmp_path: Path) -> None:
    """`idle` bounds the silence of one who does not read, and the listener cuts nobody off before it."""
    limits = ConnectionLimits()
    set_limits(limits, config("http://127.0.0.1:9", tmp_path, timeouts={"idle": 600.0}))
    assert limits == ConnectionLimits(read_seconds=30.0, write_seconds=600.0)
