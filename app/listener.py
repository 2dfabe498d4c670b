"""One connection of a caller: uvicorn's, with an end to its patience and to the size of a head.

uvicorn's httptools protocol waits for ever for a head or a body that does not come, and keeps a head
of any size; whoever opens connections and says little would hold descriptors and memory for nothing.
Here a request must be in within `seconds` of its first byte (a connection's first one: of its opening),
and all that is not body fits in MAX_HEAD_BYTES. A request that came in one read, as nearly all do, costs
no timer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.errors import BadHTTP, HeadTooLarge, MannersError, TooSlow

MAX_HEAD_BYTES = 32 << 10


class Connection(HttpToolsProtocol):
    """`seconds`: how long a request may take to come in. What is wrong is told, to `count` by its code, and the
    connection ends."""

    def __init__(self, *args: Any, seconds: float, count: Callable[[str], None], **more: Any) -> None:
        super().__init__(*args, **more)
        self._seconds = seconds
        self._count = count
        self._due: asyncio.TimerHandle | None = None
        self._within = True  # a request is coming in, or the first one is waited for
        self._in_head = True
        self._head_bytes = 0
        self._fault: MannersError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # it was told what is wrong
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return self._stop()
        if not self._within:
            return self._stop()
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            return self._refuse(_too_large())
        if self._due is None:
            self._wait()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._within, self._in_head, self._head_bytes = True, True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            return super().on_header(name, value)
        self._head_bytes += len(name) + len(value)  # a trailer, which nobody here reads
        self._check(self._head_bytes)

    def on_headers_complete(self) -> None:
        self._check(len(self.url) + sum(len(name) + len(value) for name, value in self.headers))
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            self._fault = BadHTTP("no HTTP but 1.0 and 1.1 is spoken here")
            raise self._fault
        self._in_head, self._head_bytes = False, 0
        self._stop()  # the body has a time of its own
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._within = self._in_head = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser did not take."""
        self._refuse(self._fault or BadHTTP("this is not a request in HTTP/1.1"))

    # Inside.

    def _check(self, size: int) -> None:
        if size > MAX_HEAD_BYTES:
            self._fault = _too_large()
            raise self._fault  # httptools makes a parser's error of it

    def _wait(self) -> None:
        self._due = self.loop.call_later(self._seconds, self._late)

    def _stop(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _late(self) -> None:
        """Nobody is cut off whose reply is on its way, or who waits for us to read on."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy and (self._in_head or self.pipeline):
            return self._wait()
        self._due = None
        if not self.transport.is_closing():
            self._refuse(TooSlow(f"the request was not here within {self._seconds:g} s"))

    def _refuse(self, error: MannersError) -> None:
        """Tell it, unless a reply is under way or over, and end the connection."""
        self._stop()
        self._count(error.code)
        if self.cycle is None or self._in_head or not self.cycle.response_started:
            self.transport.write(_raw(error))
        self.transport.close()


def _too_large() -> MannersError:
    return HeadTooLarge(f"the request's head is larger than {MAX_HEAD_BYTES} bytes: send less")


def _raw(error: MannersError) -> bytes:
    body = msgspec.json.encode(error.envelope())
    head = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    named = b"x-manners-engine: none\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    return STATUS_LINE[error.status] + head + named + body
