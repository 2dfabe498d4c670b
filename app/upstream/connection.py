"""HTTP/1.1 towards an engine: one connection, one reply at a time, on llhttp's parser (httptools).

It is hand-written because of the cost of a chunk: the socket's callback passes it to a sink, and no task wakes.
aiohttp costs 7 us a chunk more, httpx2 45 (docs/bench.md). It implements only what engines need.

`close` aborts a reply in one uninterruptible call: it aborts the connection, so the engine sees that its client is gone.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from app.errors.translate import as_upstream_error, route_errors_to
from app.errors.tree import EngineBroke, EngineDown, MannersError
from deploy.core.engine_http import is_hosts_fault

MAX_HEAD_BYTES = 64 << 10
"""The limit on everything but the body: heads, interim replies (1xx), chunk sizes and extensions, trailers."""
FRAMING_PER_BODY_BYTE = 8
"""Bytes of framing that each byte of body pays for. One-byte chunks need 5 (`1 CRLF x CRLF`)."""
DISCONNECTED = "upstream_disconnected"
"""The code of the only fault after which a retry is safe: no byte of a reply arrived."""
HOST_EXHAUSTED = "host_exhausted"  # the code if this host had no descriptor or no memory for the connection
MAX_BODY_BYTES = 16 << 20  # the limit on a reply that is not streamed
_NOT_HTTP = (httptools.HttpParserError, httptools.HttpParserUpgrade)  # the second one is no HttpParserError


def unreachable(error: OSError) -> MannersError:
    """Why there is no connection. It names the error's type only: the text of an OSError contains addresses."""
    if is_hosts_fault(error):
        return EngineDown("this host has no room for another connection now: try again", HOST_EXHAUSTED)
    code = "connect_timeout" if isinstance(error, TimeoutError) else "connect_failed"
    return EngineDown(f"the engine could not be reached ({type(error).__name__})", code)


class Sink(Protocol):
    """Takes the body of a reply. If a method raises, the connection ends and `end` is called (again) with an error."""

    def data(self, data: bytes) -> None:
        """A part of the body."""

    def end(self, error: MannersError | None) -> None:
        """The body is complete; `error`: it was cut off."""


class ResponseHandler(Sink, Protocol):
    """Handles a reply in callbacks, so that no task wakes for its head."""

    def sent(self, reply: "EngineReply") -> None:
        """The request was written, perhaps not for the last time. Work done here costs no time to first token."""

    def begins(self, reply: "EngineReply", over: "asyncio.Future[None]") -> bool:
        """The head has arrived. True: the handler takes the body, and completes `over`, which `send` returned."""


class EngineReply(asyncio.Protocol):
    """One connection and its current reply. Any exception in a callback ends both, with an error."""

    _transport: asyncio.Transport  # set when the connection is made
    _unread: "select.poll | None" = None  # tells whether the socket holds bytes

    def __init__(self, unasked: Callable[[], None] = lambda: None) -> None:
        self._unasked = unasked  # called after unsolicited bytes
        self._loop = asyncio.get_running_loop()  # kept, for before Python 3.12 the call is a system call
        self.status, self.is_stream = 0, False  # is_stream: the body is a stream of events
        self.headers: dict[bytes, bytes] = {}
        self.complete = True  # no reply is outstanding: the connection may be used
        self.lost = False
        self.idle_since = 0.0
        self._head: asyncio.Future[None] | None = None
        self._handler: ResponseHandler | None = None
        self._sink: Sink | None = None
        self._parts: list[bytes] = []  # of the body, not yet passed to the sink
        self.on_body = self._parts.append  # what the parser calls
        self._error: MannersError | None = None
        self._aborted = False
        self.answered = False  # at least a byte has come
        self._framing = 0  # bytes that are not body, less what the body has paid for
        self._is_paused = False

    # Called by the pool and the exchange.

    def send(self, request: bytes, handler: ResponseHandler | None = None) -> asyncio.Future[None]:
        """Send a request; the future is done when the reply's head arrives, or when the handler says so."""
        self.status, self.headers, self.complete = 0, {}, False
        self._sink = self._error = None
        self._parts.clear()
        self.answered, self._framing = False, 0
        self._head, self._handler = self._loop.create_future(), handler
        self._transport.write(request)
        self._parser = httptools.HttpResponseParser(self)
        if handler is not None:
            handler.sent(self)
        return self._head

    def set_body_consumer(self, sink: Sink) -> None:
        """Pass the body to `sink`: at once what has arrived, the rest as it arrives."""
        self._sink = sink
        try:
            self._deliver()
        except BaseException as error:
            self.failed(error)

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises EngineBroke if it is cut off or too large."""
        reader = BodyReader(limit)
        self.set_body_consumer(reader)
        return await reader.done

    def pause(self, is_paused: bool = True) -> None:
        """Pause reading, as the caller cannot keep up, or resume it."""
        self._is_paused = is_paused
        if not self._transport.is_closing():
            (self._transport.pause_reading if is_paused else self._transport.resume_reading)()

    def close(self) -> None:
        """Abort whatever is outstanding. Never waits; may be called at any time."""
        self._sink = None
        self.abort()

    def abort(self) -> None:
        """Drop the connection; the sink is called when it is gone."""
        self._aborted = True
        self._transport.abort()

    @property
    def is_reusable(self) -> bool:
        """Whether another request may be sent on this connection."""
        if self._aborted or self.lost or self._is_paused or not self.complete or self._transport.is_closing():
            return False
        # If the engine answered before it had the whole request, its rest would go out before the next request. Before the
        # first request only the end of a TLS handshake can wait there.
        return not self.answered or not self._transport.get_write_buffer_size()

    @property
    def is_silent(self) -> bool:
        """Whether the socket holds neither data nor an end. The event loop would take unread bytes for the next reply."""
        if self._unread is None:
            self._unread = select.poll()
            self._unread.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not self._unread.poll(0)

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        try:
            is_behind = self.complete
            if self._aborted:
                return
            if is_behind:
                self._unasked()
                return self.close()
            self.answered = True
            try:
                self._parser.feed_data(data)
            except _NOT_HTTP:
                if not self.complete:
                    raise
                self._aborted = True  # the reply is complete: discard bytes after it
                self._unasked()
            parts, sink = self._parts, self._sink
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            unpaid = len(data) - (FRAMING_PER_BODY_BYTE + 1) * len(body)
            if unpaid > 0 or self._framing:
                self._framing = max(self._framing + unpaid, 0)
                if self._framing > MAX_HEAD_BYTES and not self.complete:
                    raise _too_large()
            if sink is not None and body:  # not by `_deliver`: a call costs each chunk
                parts.clear()
                sink.data(body)
            if self.complete:
                self._deliver()
            if self._aborted:
                self.abort()
        except BaseException as error:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """The reply cannot be read to its end, or its sink failed."""
        self._aborted = True
        if isinstance(error, httptools.HttpParserCallbackError):
            error = error.__context__ or error
        if isinstance(error, _NOT_HTTP):
            told = f"the engine's reply is not HTTP/1.1 ({type(error).__name__})"
            error = EngineBroke(told, "upstream_malformed")
        try:
            self._fail(as_upstream_error(error))
        finally:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        with route_errors_to(self.failed):
            if not self.complete or self._sink is not None:
                what = "in mid-reply" if self.answered else "before it answered"
                code = "upstream_truncated" if self.answered else DISCONNECTED
                self._fail(EngineBroke(f"the engine closed the connection {what}", code))
        self._handler = None  # the parser refers back to this: only the collector would free the request

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self.complete:
            raise ValueError("a second reply to one request")
        self.headers = {}  # drop those of an interim reply

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return  # trailers are ignored
        name, headers = name.lower(), self.headers
        headers[name] = headers[name] + b", " + value if name in headers else value

    def on_headers_complete(self) -> None:
        status, headers = self._parser.get_status_code(), self.headers
        if 100 <= status < 200:
            return
        framing = headers.get(b"transfer-encoding", b"chunked").lower()
        coding = headers.get(b"content-encoding", b"").lower()  # no request asks for one
        if status < 100 or framing != b"chunked" or coding not in (b"", b"identity"):
            raise EngineBroke(
                "the gateway cannot read the status or the encoding of the engine's reply",
                "upstream_malformed",
            )
        self.status = status
        self.is_stream = headers.get(b"content-type", b"").lower().startswith(b"text/event-stream")
        if self._head is None or self._head.done():
            return
        handler, self._handler = self._handler, None  # free it now, not during the next request
        if handler is not None and handler.begins(self, self._head):
            self._head, self._sink = None, handler
        else:
            self._head.set_result(None)

    def on_message_complete(self) -> None:
        if self.status:  # not one of the 1xx kind
            self.complete = True
            if not self._parser.should_keep_alive():
                self._transport.close()

    # Internal.

    def _deliver(self) -> None:
        """Pass all of one read to the sink, in one piece."""
        sink = self._sink
        if sink is None:
            return
        if parts := self._parts:
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            sink.data(data)
        if self._sink is not None and (self.complete or self._error):
            sink.end(self._error)
            self._sink = None  # after the call: if it raised, `end` is called again with the error

    def _fail(self, error: MannersError) -> None:
        self._error = self._error or error  # the first fault counts
        if self._head and not self._head.done():
            self._head.set_exception(self._error)
        else:
            self._deliver()


def _too_large() -> EngineBroke:
    return EngineBroke(f"the engine's reply has over {MAX_HEAD_BYTES} bytes of framing", "upstream_too_large")


class BodyReader:
    """A sink that collects a body of up to `limit` bytes; `done` has it, or the error."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._body = bytearray()
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data(self, data: bytes) -> None:
        if self.done.done():
            return
        self._body += data
        if len(self._body) > self._limit:
            self._body.clear()
            too_large = f"the engine's reply is too large: over {self._limit} bytes"
            self.end(EngineBroke(too_large, "upstream_too_large"))

    def end(self, error: MannersError | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(bytes(self._body))
        else:
            self.done.set_exception(error)
