"""Requests that mean harm, over a real socket: each is refused in words, and nobody else notices."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.app.house import HELLO, TOKEN, GatewayFixture, eventually, house, said
from tests.reliability.wire import Wire, code, post, statuses
from tests.script import DONE, Head, Say, Wait, finish, text

pytestmark = [pytest.mark.reliability, pytest.mark.asyncio(loop_scope="module")]

SECONDS = 1.0
BODY = {"model": "annie", "messages": HELLO}
OPERATOR = f"Authorization: Bearer {TOKEN}".encode()
SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway of little patience for those who are slow to ask."""
    async with house(tmp_path_factory.mktemp("state"), gateway={"read_seconds": SECONDS}) as it:
        yield it


async def is_well(home: GatewayFixture) -> None:
    """Nothing reached the engine, and a good caller is served."""
    assert home.engine.requests == []
    assert (await home.ask()).text == "Hello there."
    home.engine.forget()
    await eventually(home.is_quiet)  # a place is free a moment after the last byte


AMBIGUOUS: dict[str, bytes] = {
    "a length and chunks": post(b"0\r\n\r\n", "Content-Length: 4", CHUNKED),
    "chunks and a length": post(b"0\r\n\r\n", CHUNKED, "Content-Length: 4"),
    "two lengths": post(b"{}", "Content-Length: 2", "Content-Length: 40"),
    "one length twice": post(b"{}", "Content-Length: 2", "Content-Length: 2"),
    "a list of lengths": post(b"{}", "Content-Length: 2, 2"),
    "a length with a sign": post(b"{}", "Content-Length: +2"),
    "a negative length": post(b"{}", "Content-Length: -2"),
    "a length in hex": post(b"{}", "Content-Length: 0x2"),
    "a length without end": post(b"{}", f"Content-Length: {'9' * 40}"),
    "chunks that are not last": post(b"0\r\n\r\n", "Transfer-Encoding: chunked, identity"),
    "chunks by another name": post(b"0\r\n\r\n", "Transfer-Encoding: xchunked"),
    "chunks twice": post(b"0\r\n\r\n", CHUNKED, "Transfer-Encoding: identity"),
    "a blank before the colon": post(b"0\r\n\r\n", "Transfer-Encoding : chunked", "Content-Length: 5"),
    "a header folded over two lines": post(b"0\r\n\r\n", "Transfer-Encoding:\r\n chunked"),
    "a chunk's size with a sign": post(b"+2\r\n{}\r\n0\r\n\r\n", CHUNKED),
    "a chunk's size in C": post(b"0x2\r\n{}\r\n0\r\n\r\n", CHUNKED),
    "a chunk's size without end": post(b"f" * 40 + b"\r\n", CHUNKED),
    "a chunk longer than it says": post(b"2\r\n{}{}\r\n0\r\n\r\n", CHUNKED),
    "a zero in a header": post(b"{}", "X: a\0b"),
    "a return in a header": post(b"{}", "X: a\rTransfer-Encoding: chunked"),
    "no name": post(b"{}", ": x"),
    "no target": b"GET  HTTP/1.1\r\n\r\n",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "noise": bytes(range(256)) * 8,
}


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_what_may_be_read_in_two_ways_is_not_read_at_all(home: GatewayFixture, name: str) -> None:
    """One 400 and the end: what follows in the same bytes is no request."""
    wire = await Wire.to(home.url)
    await wire.send(AMBIGUOUS[name] + SMUGGLED)
    raw = await wire.rest()
    assert (list(statuses(raw)), code(raw)) == ([400], "invalid_http")
    await is_well(home)


@pytest.mark.parametrize("listener", ["public", "admin"])
async def test_what_could_not_be_read_is_counted_by_its_code(home: GatewayFixture, listener: str) -> None:
    async def counted() -> float:
        return (await home.metrics())("manners_unreadable_total", listener=listener, code="invalid_http")

    before = await counted()
    wire = await Wire.to(home.url if listener == "public" else home.admin)
    await wire.send(AMBIGUOUS["two lengths"])
    await wire.rest()
    assert await counted() == before + 1


LARGE: dict[str, tuple[bytes, int, str]] = {
    "a flood of headers": (b"GET /healthz HTTP/1.1\r\n" + b"x-flood: 1\r\n" * 200_000, 431, "headers_too_large"),
    "a head that comes at once": (b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n", 431, "headers_too_large"),
    "a header of 8 MB": (b"GET /healthz HTTP/1.1\r\nx: " + b"y" * (8 << 20), 431, "headers_too_large"),
    "a path of 8 MB": (b"GET /" + b"y" * (8 << 20), 431, "headers_too_large"),
    "a flood of trailers": (post(b"0\r\n" + b"x-flood: 1\r\n" * 200_000, CHUNKED), 431, "headers_too_large"),
    "a body of one 8 MB line": (post({**BODY, "user": "y" * (8 << 20)}, "Connection: close"), 413, "body_too_large"),
    "8 MB in chunks": (post(b"10000\r\n" + b"y" * 65_536 + b"\r\n", CHUNKED) + (b"10000\r\n" + b"y" * 65_536 + b"\r\n") * 127, 413, "body_too_large"),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
async def test_what_is_too_large_is_refused_while_it_comes(home: GatewayFixture, name: str) -> None:
    """The connection ends, also for one who goes on sending."""
    data, status, word = LARGE[name]
    wire = await Wire.to(home.url)
    sending = asyncio.create_task(wire.send(data))
    raw = await wire.rest()
    await sending
    if raw:  # a reset, which one who still sends may get, takes the words with it
        assert (list(statuses(raw)), code(raw)) == ([status], word)
    await is_well(home)


SLOW: dict[str, bytes] = {
    "nothing": b"",
    "half a line": b"POST /v1/chat",
    "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n",
    "half a body": post(b'{"model": "annie"', "Content-Length: 999"),
    "half a chunk": post(b'999\r\n{"model": "annie"', CHUNKED),
    "a body that waits to be asked for": post(b"", "Content-Length: 999", "Expect: 100-continue"),
}


@pytest.mark.parametrize("listener", ["public", "admin"])
@pytest.mark.parametrize("name", SLOW)
async def test_who_is_slow_to_ask_is_not_waited_for(home: GatewayFixture, name: str, listener: str) -> None:
    """A byte now and then buys no time."""
    wire, data = await Wire.to(home.url if listener == "public" else home.admin), SLOW[name]
    if listener == "admin":
        data = data.replace(b"/v1/chat/completions", b"/admin/reports").replace(
            b"Host: localhost", b"Host: localhost\r\n" + OPERATOR
        )
    await wire.send(data)
    ended = asyncio.create_task(wire.rest())
    while SLOW[name] and not ended.done():
        await wire.send(b"x")
        await asyncio.wait([ended], timeout=SECONDS / 4)
    raw = (await ended).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert (list(statuses(raw)), code(raw)) == ([408], "request_timeout")
    await is_well(home)
    assert not [line for line in home.log.lines if line["level"] == "error"]


async def test_hundreds_who_are_slow_hold_nobody_up(home: GatewayFixture) -> None:
    wires = [await Wire.to(home.url) for _ in range(300)]
    await asyncio.gather(*[wire.send(SLOW["half a head"]) for wire in wires])
    assert (await home.ask()).text == "Hello there."
    ends = await asyncio.gather(*[wire.rest() for wire in wires])
    assert all(list(statuses(raw)) == [408] for raw in ends)
    home.engine.forget()
    await is_well(home)


async def test_who_goes_on_sending_after_a_no_is_let_go(home: GatewayFixture) -> None:
    """The reply is over, the body is not: the connection is not kept for it."""
    wire = await Wire.to(home.url)
    await wire.send(post(b"{", f"Content-Length: {9 << 20}"))
    head = await wire.until(b"\r\n\r\n")
    assert list(statuses(head)) == [413]
    await wire.rest()
    await is_well(home)


async def test_half_a_second_request_cuts_no_stream_short(home: GatewayFixture) -> None:
    """Who is being served may be slow to say what comes next."""
    home.engine.play(Head(), Say(text("One")), Wait(3 * SECONDS), Say(text(" two")), Say(finish()), Say(DONE))
    wire = await Wire.to(home.url)
    await wire.send(post({**BODY, "stream": True}) + b"POST /v1/chat")
    raw = await wire.until(b"data: [DONE]\n\n")
    wire.close()
    events = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: {")]
    assert said([json.loads(event) for event in events]) == "One two"
    home.engine.forget()
