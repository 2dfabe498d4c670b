"""One connection of a caller: uvicorn's, with bounded memory and bounded waiting.

uvicorn's httptools protocol keeps a head of any size, waits without limit, and queues a task for each request that is
sent ahead of its turn. This one serves one request at a time: a peer that sends another before it has the whole reply
(HTTP pipelining) gets that reply, and then the connection's end (RFC 9112, 9.3.2, lets a server do so).

The budget of one connection, beside the request body that the application takes and the reply that it makes:

    MAX_HEAD_BYTES + one read      a request's head; also everything in a chunked body that is not data
    HIGH_WATER_LIMIT + one read    of a body that the application has not taken (uvicorn's 64 KiB)
    64 KiB + one reply             bytes that the peer has not taken (the transport's high-water mark)

A request must arrive within `read_seconds` of its first byte (the first one: of the connection's opening). A peer that
takes no byte for `write_seconds` is cut off. The server looks after both once a second (`sweep`), so no request sets a timer.

It uses internals of uvicorn, which has no public way to do this, so pyproject.toml has an upper bound for uvicorn.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.errors.tree import BadHTTP, MannersError, Unavailable
from app.http.hosts import host_name

MAX_HEAD_BYTES: Final = 32 << 10
MAX_HEADERS: Final = 100
"""Apache's default of LimitRequestFields. A parsed header costs a hundred times its bytes."""

ONCE: Final = (
    b"authorization", b"x-api-key", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"content-type", b"content-encoding",
    b"idempotency-key",
)  # fmt: skip
"""Headers that decide whether and how a request is served, and may come once: a proxy and this gateway might each believe
another one. Host and Transfer-Encoding are malformed HTTP if they come twice; the parser checks Content-Length."""
_NO_HTTP: Final = "this is not a request in HTTP/1.1 or HTTP/1.0"
_MALFORMED_TWICE: Final = (b"host", b"transfer-encoding")


@dataclass
class ConnectionLimits:
    """Of a listener. connections: open at once. read_seconds: for a request to arrive. write_seconds: without the peer taking
    a byte."""

    connections: int = 1024
    read_seconds: float = 30.0
    write_seconds: float = 30.0


DEFAULT_LIMITS = ConnectionLimits()


class Connection(HttpToolsProtocol):
    """Answers an unreadable request with an error, passes the error's code to `count`, and ends the connection."""

    def __init__(
        self, *args: Any, limits: ConnectionLimits, count: Callable[[str], None], **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._limits = limits
        self._count = count
        self._since: float | None = (
            self.loop.time()
        )  # when what arrives of a request began; None: nothing does
        self._in_head = True
        self._framing = 0  # bytes of the request that are not its body, less what the body has paid for
        self._is_last = False  # the next request came too early: the connection ends with the reply
        self._unsent = (0, 0.0)  # bytes that the peer has not taken, and since when their number is the same

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > (most := self._limits.connections):
            too_many = f"{most} connections are open on this listener: close some, or try again later"
            self._refuse(Unavailable(too_many, "too_many_connections", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        cycle: Any = self.cycle
        if cycle is not None and cycle.disconnected and cycle.on_lost is not None:
            cycle.on_lost()

    def data_received(self, data: bytes) -> None:
        if self._is_last or self.transport.is_closing():
            return
        self._framing += len(data)
        head_end = 0
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                head_end = upgrade.args[0]
            if head_end:
                self._read_without_upgrade(data[head_end:])
        except httptools.HttpParserError as error:
            fault = error.__context__
            if not self._is_last:
                self._refuse(fault if isinstance(fault, MannersError) else BadHTTP(_NO_HTTP))
            return
        if self._since is None:
            return
        if self._framing > MAX_HEAD_BYTES:
            return self._refuse(_too_large())
        self._framing = max(self._framing, 0)

    def sweep(self, now: float) -> None:
        """Called every second: end a request that came too slowly, and cut off a peer that takes none of its bytes."""
        seconds = self._limits.read_seconds
        if self._since is not None and now - self._since >= seconds and not self.transport.is_closing():
            self._refuse(BadHTTP(f"the request did not arrive within {seconds:g} s", "request_timeout"))
        unsent, (before, since) = self.transport.get_write_buffer_size(), self._unsent
        if not unsent or unsent != before:
            self._unsent = (unsent, now)
        elif now - since >= self._limits.write_seconds:
            self._count("reader_timeout")
            self.transport.abort()

    # Called by the parser. An error that is raised here becomes the `__context__` of the parser's.

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive, self._is_last = False, True
            raise BadHTTP(_NO_HTTP)
        self._unset_keepalive_if_required()
        self._since, self._in_head = self.loop.time(), True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # trailers are ignored
        if len(self.headers) == MAX_HEADERS:
            raise BadHTTP(f"the request has more than {MAX_HEADERS} headers: send fewer", "headers_too_large")
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            raise BadHTTP("this is no proxy: CONNECT is not served")
        if self.parser.should_upgrade():
            return  # `_read_without_upgrade` reads it again
        if self._framing > MAX_HEAD_BYTES:  # a part of it may be body
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > MAX_HEAD_BYTES:
                raise _too_large()
        headers = dict(self.headers)
        self._check(headers)
        self.expect_100_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        self._since, self._in_head = self.loop.time(), False  # the body has a time of its own
        super().on_headers_complete()
        cycle: Any = self.cycle
        cycle.on_lost = None  # the application may set a callback (`app.proxy.deadlines`)

    def on_body(self, body: bytes) -> None:
        self._framing -= 2 * len(body)  # each byte pays for one of framing
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._since, self._framing = None, 0
        super().on_message_complete()

    def _check(self, headers: dict[bytes, bytes]) -> None:
        """What RFC 9112 (3.2, 6.1) asks of a head. HTTP/1.0 may send no Host, and has no codings."""
        if len(headers) != len(self.headers):
            names = [name for name, _ in self.headers]
            for name in (*_MALFORMED_TWICE, *ONCE):
                if names.count(name) > 1:
                    code = BadHTTP.code if name in _MALFORMED_TWICE else "duplicate_header"
                    raise BadHTTP(f"send {name.decode()} once", code)
        is_old, host = self.parser.get_http_version() == "1.0", headers.get(b"host")
        if host is None and not is_old:
            raise BadHTTP("send exactly one Host header")
        if host is not None and host_name(host) is None:
            raise BadHTTP("the Host header must be a host name or address, with or without a port")
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (is_old or coding.lower() != b"chunked"):
            raise BadHTTP("send the body with a Content-Length, or with Transfer-Encoding: chunked alone")

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Parse the head again without `Upgrade`, which this server ignores.

        Java's client sends `Upgrade: h2c` with each request, and the parser would skip its body.
        """
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _refuse(self, error: MannersError) -> None:
        """Send the error, unless a reply to this request has begun, and end the connection."""
        self._since = None
        self._count(error.code)
        if self.cycle is None or self._in_head or not self.cycle.response_started:
            self.transport.write(_raw(error))
        self.transport.close()


def _too_large() -> MannersError:
    message = f"the head, or what is not data in the body, is larger than {MAX_HEAD_BYTES} bytes"
    return BadHTTP(message, "headers_too_large")


def _raw(error: MannersError) -> bytes:
    body = msgspec.json.encode(error.envelope())
    head = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    if error.retry_after is not None:
        head += b"retry-after: %d\r\n" % error.retry_after
    named = b"x-manners-engine: none\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    return STATUS_LINE[error.status] + head + named + body
