"""One connection of a caller: uvicorn's, with bounded memory and bounded waiting.

uvicorn's httptools protocol parses all that it reads, queues a task for each pipelined request, keeps a head of any
size and waits without limit. This one parses one request at a time: the bytes after it stay unparsed until its reply is
complete, and reading stops when they are too many.

The budget of one connection, beside the request body that the application takes and the reply that it makes:

    MAX_HEAD_BYTES, MAX_HEADERS    a request's head; also everything in a chunked body that is not data
    READ_AHEAD + one read          bytes read and not yet parsed (one read: at most 256 KiB)
    HIGH_WATER_LIMIT + one read    of a body that the application has not taken (uvicorn's 64 KiB)
    64 KiB + one reply             bytes that the peer has not taken (the transport's high-water mark)

A request must arrive within `read_seconds` of its first byte (the first one: of the connection's opening). A peer that
takes no byte for `write_seconds` is cut off. A request in one read, as nearly all are, needs no timer.

It uses internals of uvicorn, which has no public way to do this, so pyproject.toml has an upper bound for uvicorn.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.errors.tree import BadHTTP, HeadTooLarge, MannersError, TooManyConnections, TooSlow
from app.http.hosts import host_name

MAX_HEAD_BYTES = 32 << 10
MAX_HEADERS = 100
"""Apache's default of LimitRequestFields. A parsed header costs a hundred times its bytes."""
READ_AHEAD = 64 << 10
"""Bytes of later requests kept while one is served; more stay in the socket."""
TURN_BYTES = 64 << 10
"""Bytes parsed before other connections get their turn."""
TURN_CHUNKS = 128
"""Chunks of a body parsed in one turn: they may have one byte each, on a thousand connections at once."""
CHUNKED_BYTES = 1 << 10
"""Bytes of a chunked body parsed before its chunks are counted."""
PARSED_AT_ONCE = 8
"""Connections of a listener that continue with read-ahead bytes in one iteration of the event loop."""
CHUNK_OVERHEAD = 16
"""Bytes that a chunk's size line and line ends may take; further ones (extensions) count as head."""

ONCE = frozenset({
    b"authorization", b"x-api-key", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"content-type", b"content-encoding",
    b"idempotency-key",
})  # fmt: skip
"""Headers that decide whether and how a request is served, and may come once: a proxy and this gateway might each believe
another one. Host, Content-Length and Transfer-Encoding have checks of their own."""

_BLANK_LINE = b"\r\n\r\n"


@dataclass
class ConnectionLimits:
    """Of a listener. connections: open at once. read_seconds: for a request to arrive. write_seconds: without the peer taking
    a byte."""

    connections: int = 1024
    read_seconds: float = 30.0
    write_seconds: float = 30.0


DEFAULT_LIMITS = ConnectionLimits()


class _Flow(FlowControl):
    """Keeps reading paused while `full` is set, although uvicorn's `receive` asks to resume it."""

    full = False

    def resume_reading(self) -> None:
        if not self.full:
            super().resume_reading()


class ParseQueue:
    """Connections with more bytes than one turn may parse continue here, PARSED_AT_ONCE in an iteration."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    def add(self, parse: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call `parse` once, in its turn."""
        self._waiting.append(parse)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(PARSED_AT_ONCE, len(self._waiting))):
            loop.call_soon(self._waiting.popleft())
        self._is_due = bool(self._waiting)
        if self._is_due:
            loop.call_soon(self._next, loop)


class Connection(HttpToolsProtocol):
    """Answers an unreadable request with an error, passes the error's code to `count`, and ends the connection."""

    flow: _Flow

    def __init__(
        self,
        *args: Any,
        limits: ConnectionLimits,
        count: Callable[[str], None],
        queue: ParseQueue,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._limits = limits
        self._queue = queue
        self._count = count
        self._due: asyncio.TimerHandle | None = None
        self._unread = b""  # bytes read, of which `_at` are parsed
        self._at = 0
        self._within = True  # a request is arriving, or the first one is expected
        self._in_head = True
        self._head_bytes = 0
        self._line: bytes | None = b""  # the end of an incomplete request line; None once it is complete
        self._tail = b""  # the last parsed bytes: a blank line may be split over two reads
        self._body_left = 0  # bytes missing of a body of stated length
        self._overhead = 0  # bytes of a chunked body that are not data, less CHUNK_OVERHEAD a chunk
        self._chunks = 0  # parsed in this turn
        self._fault: MannersError | None = None
        self._unsent = (0, 0.0)  # bytes that the peer has not taken, and since when their number is the same

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        if len(self.connections) > self._limits.connections:
            return self._refuse(_too_many(self._limits.connections))
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._unread, self._at = b"", 0
        super().connection_lost(exc)
        cycle: Any = self.cycle
        if cycle is not None and cycle.disconnected and cycle.on_lost is not None:
            cycle.on_lost()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unread = self._unread[self._at :] + data if self._unread else data
        self._at = 0
        self._parse()

    def sweep(self, now: float) -> None:
        """Called every few seconds: cut off a peer that takes none of its bytes."""
        unsent, (before, since) = self.transport.get_write_buffer_size(), self._unsent
        if not unsent or unsent != before:
            self._unsent = (unsent, now)
        elif now - since >= self._limits.write_seconds:
            self._count("reader_timeout")
            self.transport.abort()

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._is_serving:
            self._raise(
                BadHTTP("a second request begins inside the first one")
            )  # `_piece_end` missed its end
        self._unset_keepalive_if_required()
        self._within, self._in_head, self._head_bytes = True, True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # trailers are ignored
        headers = self.headers
        if len(headers) == MAX_HEADERS:
            self._raise(HeadTooLarge(f"the request has more than {MAX_HEADERS} headers: send fewer"))
        headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._fault is not None:
            self._raise(self._fault)
        if self.parser.get_method() == b"CONNECT":
            self._raise(BadHTTP("this is no proxy: CONNECT is not served"))
        if self.parser.should_upgrade():
            return  # `_read_without_upgrade` reads it again
        headers = dict(self.headers)
        self._check_host(headers)
        if len(headers) != len(self.headers):
            self._check_twins()
        if b"transfer-encoding" in headers:
            self._check_coding()
        self.expect_100_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        self._in_head, self._tail, self._overhead = False, b"", 0
        self._body_left = int(headers.get(b"content-length", b"0"))  # the parser has checked that it is one
        self._stop()  # the body has a time of its own
        super().on_headers_complete()
        cycle: Any = self.cycle
        cycle.on_lost = None  # the application may set a callback (`app.proxy.deadlines`)

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._overhead -= CHUNK_OVERHEAD
        self._chunks += 1

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._within = self._in_head = False
        self._line = b""
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._unread and not self.transport.is_closing():
            self.loop.call_soon(self._parse)

    # Parsing.

    @property
    def _is_serving(self) -> bool:
        """Whether a request is complete and its reply is not."""
        return not self._within and self.cycle is not None and not self.cycle.response_complete

    def _parse(self) -> None:
        """Parse to the end of one request, or of this turn."""
        unread = self._unread
        turn, self._chunks = min(len(unread), self._at + TURN_BYTES), 0
        while (
            self._at < turn
            and self._chunks < TURN_CHUNKS
            and not (self._is_serving or self.transport.is_closing())
        ):
            at, self._at = self._at, self._piece_end()
            self._feed(unread[at : self._at])
        if self._at == len(unread) and not self.flow.full:
            self._unread, self._at = b"", 0
        else:
            self._hold_back()
        if not self._within or self.transport.is_closing():
            self._stop()
        elif self._due is None:
            self._wait()

    def _hold_back(self) -> None:
        """Drop the parsed bytes, and stop reading while too many are unparsed."""
        waiting = len(self._unread) - self._at
        if not waiting or self.transport.is_closing():
            self._unread, self._at, waiting = b"", 0, 0
        is_next_turn = waiting > 0 and not self._is_serving
        was_full, self.flow.full = self.flow.full, is_next_turn or waiting > READ_AHEAD
        if is_next_turn:
            self._queue.add(self._parse, self.loop)
        if self.flow.full:
            self.flow.pause_reading()
        elif was_full and (self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT):
            self.flow.resume_reading()

    def _piece_end(self) -> int:
        """How far to parse next: never beyond the end of a request.

        A head and a chunked body end with a blank line; another body states its length.
        """
        at, unread = self._at, self._unread
        if self._body_left:
            end = min(len(unread), at + min(self._body_left, TURN_BYTES))
            self._body_left -= end - at
            return end
        most = MAX_HEAD_BYTES + 1 - self._head_bytes if self._in_head else CHUNKED_BYTES
        end = min(len(unread), at + max(most, 1))
        tail = self._tail
        if tail and (found := (tail + unread[at : at + 3]).find(_BLANK_LINE)) >= 0:
            end, self._tail = at + found + 4 - len(tail), b""
        elif (found := unread.find(_BLANK_LINE, at, end)) >= 0:
            end, self._tail = found + 4, b""
        else:
            self._tail = (tail + unread[max(at, end - 3) : end])[-3:]
        return end

    def _feed(self, piece: bytes) -> None:
        was_head = self._in_head
        if self._line is not None:
            self._look_at_line(self._line + piece)
        try:
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                self._read_without_upgrade()
        except httptools.HttpParserError:
            return self._refuse(self._fault or BadHTTP("this is not a request in HTTP/1.1 or HTTP/1.0"))
        if was_head and self._in_head:
            self._head_bytes += len(piece)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge(f"the head is larger than {MAX_HEAD_BYTES} bytes: send less"))
        elif not was_head and self._within:
            self._overhead += len(piece)
            if self._overhead > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge("the chunks of the body hold too much beside data: send less"))

    def _look_at_line(self, read: bytes) -> None:
        """Note the fault of a request line of RTSP or ICE, which the parser accepts."""
        line, end, _ = read.lstrip(b"\r\n").partition(b"\n")
        self._line = None if end else line[-len(b" HTTP/1.1\r") :]
        if end and not line.rstrip(b"\r").endswith((b" HTTP/1.1", b" HTTP/1.0")):
            self._fault = BadHTTP("this is not a request in HTTP/1.1 or HTTP/1.0")

    def _read_without_upgrade(self) -> None:
        """Parse the head again without `Upgrade`, which this server ignores.

        Java's client sends `Upgrade: h2c` with each request, and the parser would skip its body.
        """
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")

    def _check_twins(self) -> None:
        """Refuse a second one of the headers that may come once."""
        names = Counter(name for name, _ in self.headers if name in ONCE)
        for name, count in names.items():
            if count > 1:
                self._raise(BadHTTP(f"send {name.decode()} once", "duplicate_header"))

    def _check_coding(self) -> None:
        """RFC 9112, 6.1: only `chunked` is decoded here, and HTTP/1.0 has no codings."""
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings != [b"chunked"] or self.parser.get_http_version() != "1.1":
            self._raise(
                BadHTTP("send the body with a Content-Length, or with Transfer-Encoding: chunked alone")
            )

    def _check_host(self, headers: Mapping[bytes, bytes]) -> None:
        """RFC 9112, 3.2: one well-formed Host, the same as in an absolute target. HTTP/1.0 may send none."""
        host = headers.get(b"host")
        if host is None and self.parser.get_http_version() == "1.0":
            return
        has_twins = len(headers) != len(self.headers)  # some name came twice, maybe this one
        if host is None or (has_twins and sum(name == b"host" for name, _ in self.headers) != 1):
            self._raise(BadHTTP("send exactly one Host header"))
        if (name := host_name(host)) is None:
            self._raise(BadHTTP("the Host header must be a host name or address, with or without a port"))
        if not self.url.startswith(b"/"):
            target = httptools.parse_url(self.url)
            asked = target.host
            if asked and name != asked.lower().decode("latin-1"):
                self._raise(BadHTTP("the Host header and the request's target name different hosts"))

    # Ends.

    def _raise(self, fault: MannersError) -> NoReturn:
        """Raise from a parser's callback, where httptools replaces the error; `_feed` reads it from `_fault`."""
        self._fault = fault
        raise fault

    def _wait(self) -> None:
        self._due = self.loop.call_later(self._limits.read_seconds, self._late)

    def _stop(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _late(self) -> None:
        self._due = None
        if not self.transport.is_closing():
            self._refuse(TooSlow(f"the request did not arrive within {self._limits.read_seconds:g} s"))

    def _refuse(self, error: MannersError) -> None:
        """Send the error, unless a reply to this request has begun, and end the connection."""
        self._stop()
        self._count(error.code)
        if self.cycle is None or self._in_head or not self.cycle.response_started:
            self.transport.write(_raw(error))
        self.transport.close()


def _too_many(most: int) -> MannersError:
    return TooManyConnections(f"{most} connections are open on this listener: close some, or try again later")


def _raw(error: MannersError) -> bytes:
    body = msgspec.json.encode(error.envelope())
    head = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    if error.retry_after is not None:
        head += b"retry-after: %d\r\n" % error.retry_after
    named = b"x-manners-engine: none\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    return STATUS_LINE[error.status] + head + named + body
