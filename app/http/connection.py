"""One connection of a caller: uvicorn's, with bounded memory and bounded waiting.

uvicorn's httptools protocol parses whatever it has read, queues a task for each pipelined request, keeps a
head of any size and waits without limit for what does not come. Here one request is parsed at a time: the bytes
behind it stay unparsed until its reply is complete, and reading stops when there are too many of them.

The budget of one connection, beside the request body that the application takes and the reply that it makes:

    MAX_HEAD_BYTES, MAX_HEADERS    a request's head; also all that is not data in a chunked body
    READ_AHEAD + one read          bytes that were read and not yet parsed (one read: at most 256 KiB)
    HIGH_WATER_LIMIT + one read    of a body that the application has not taken (uvicorn's 64 KiB)
    64 KiB + one reply             bytes that the peer has not taken (the transport's high-water mark)

A request must be in within `read_seconds` of its first byte (a connection's first one: of its opening). A peer
that takes none of the bytes waiting for it for `write_seconds` is cut off. A request that came in one read, as
nearly all do, costs no timer.

It uses internals of uvicorn, so pyproject.toml has an upper bound for it.
"""

import asyncio
from collections import deque
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
"""Apache's default of LimitRequestFields. Each costs a hundred times its bytes once it is parsed."""
READ_AHEAD = 64 << 10
"""Bytes of later requests that are kept while one is served; more stay in the socket."""
TURN_BYTES = 64 << 10
"""Bytes parsed before other connections get their turn."""
TURN_CHUNKS = 128
"""Of a chunked body, which may be all one-byte chunks: a thousand connections are read in one iteration of the event loop."""
CHUNKED_BYTES = 1 << 10
"""Of a chunked body that are parsed before its chunks are counted."""
PARSED_AT_ONCE = 8
"""Connections of a listener that go on with what they have read, in one iteration of the event loop."""
CHUNK_OVERHEAD = 16
"""Bytes that a chunk's size line and line ends may take; extensions beyond that count as head."""

ONCE = frozenset({
    b"authorization", b"x-api-key", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"content-type", b"content-encoding",
    b"idempotency-key",
})  # fmt: skip
"""Headers that decide whether and how a request is served: of two, this gateway and a proxy before it might each
believe another. Host, Content-Length and Transfer-Encoding are checked where they are read."""

_BLANK_LINE = b"\r\n\r\n"


@dataclass(frozen=True)
class ConnectionLimits:
    """Of a listener. `connections`: open at once. `read_seconds`: for a request to come in. `write_seconds`:
    without a byte taken by the peer."""

    connections: int = 1024
    read_seconds: float = 30.0
    write_seconds: float = 30.0


DEFAULT_LIMITS = ConnectionLimits()


class _Flow(FlowControl):
    """Keeps reading paused while `full` is set, whoever asks to resume it: uvicorn's `receive` does."""

    full = False

    def resume_reading(self) -> None:
        if not self.full:
            super().resume_reading()


class ParseQueue:
    """Lets connections that have read more than they may parse in one turn go on: PARSED_AT_ONCE in an iteration."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    def add(self, parse: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """It is called once, after those that wait."""
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
    """A request that cannot be read is answered with an error, its code goes to `count`, and the connection ends."""

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
        self._unread = b""  # what was read; parsed up to `_at`
        self._at = 0
        self._within = True  # a request is coming in, or the first one is waited for
        self._in_head = True
        self._head_bytes = 0
        self._line: bytes | None = b""  # the end of a request line that is coming in; None once it is here
        self._tail = b""  # the last bytes that were parsed: a blank line may be split over two reads
        self._body_left = 0  # bytes of a body of stated length
        self._overhead = 0  # bytes of a chunked body that are not data, less what its chunks may take
        self._chunks = 0  # that were parsed in this turn
        self._fault: MannersError | None = None
        self._unsent = (0, 0.0)  # bytes that wait for the peer, and since when it has taken none

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
        """Called every few seconds: cut off a peer that takes nothing of what waits for it."""
        unsent, (before, since) = self.transport.get_write_buffer_size(), self._unsent
        if not unsent or unsent != before:
            self._unsent = (unsent, now)
        elif now - since >= self._limits.write_seconds:
            self._count("reader_timeout")
            self.transport.abort()

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._is_serving:
            self._raise(BadHTTP("this request ends where none may"))  # `_piece_end` did not see it end
        self._unset_keepalive_if_required()
        self._within, self._in_head, self._head_bytes = True, True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer, which nobody here reads
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
            return  # it is read again without that wish
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
        cycle.on_lost = None  # what serves the request may have itself called (`app.proxy.deadlines`)

    def on_chunk_header(self) -> None:
        """Called by the parser for each chunk."""
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
        """Whether a whole request has come, and its reply is not complete."""
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
        """Drop what was parsed, and stop reading while too much is not."""
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

        A head ends with a blank line, and so does a chunked body; another body says how long it is.
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
                self._refuse(HeadTooLarge("the body's chunks have too much that is not data: send less"))

    def _look_at_line(self, read: bytes) -> None:
        """Note the fault of a request line that is none of HTTP: the parser takes RTSP and ICE, too."""
        line, end, _ = read.lstrip(b"\r\n").partition(b"\n")
        self._line = None if end else line[-len(b" HTTP/1.1\r") :]
        if end and not line.rstrip(b"\r").endswith((b" HTTP/1.1", b" HTTP/1.0")):
            self._fault = BadHTTP("this is not a request in HTTP/1.1 or HTTP/1.0")

    def _read_without_upgrade(self) -> None:
        """Read the head once more, without the wish to speak another protocol: none is spoken here.

        Java's client sends `Upgrade: h2c` with each request, and the parser would leave out its body.
        """
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")

    def _check_twins(self) -> None:
        """Some name came twice."""
        names = [name for name, _ in self.headers if name in ONCE]
        for name in set(names):
            if names.count(name) > 1:
                self._raise(BadHTTP(f"send {name.decode()} once", "duplicate_header"))

    def _check_coding(self) -> None:
        """RFC 9112, 6.1: any other coding would be taken for the body itself, and HTTP/1.0 has none."""
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings != [b"chunked"] or self.parser.get_http_version() != "1.1":
            self._raise(
                BadHTTP("send the body with a Content-Length, or with Transfer-Encoding: chunked alone")
            )

    def _check_host(self, headers: Mapping[bytes, bytes]) -> None:
        """RFC 9112, 3.2: one Host, well formed, and the one that an absolute target names. HTTP/1.0 may send none."""
        host = headers.get(b"host")
        if host is None and self.parser.get_http_version() == "1.0":
            return
        has_twins = len(headers) != len(self.headers)  # some name came twice
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
        """Out of a callback: httptools makes a parser's error of it."""
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
            self._refuse(TooSlow(f"the request was not here within {self._limits.read_seconds:g} s"))

    def _refuse(self, error: MannersError) -> None:
        """Send the error, unless a reply to this request is under way or over, and end the connection."""
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
