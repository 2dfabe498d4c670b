"""Connections whose replies are bounded in bytes and lines before they are parsed.

The HTTP client's parser takes some 50 us for an interim reply (1xx) or a chunk, however short: a flood of them would hold the
event loop, and all other tasks with it. So one read gives it little, and a reply has so many lines and no more.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpcore2

READ_BYTES: Final = 2048
"""The most that is parsed before other tasks get a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLimits:
    """The most that a reply with its head may have: bytes, and lines (a chunk, an interim reply and an event have two each)."""

    size: int = 32 << 20
    lines: int = 1 << 20


GATE_LIMITS: Final = ReplyLimits()


class BoundedBackend(httpcore2.AsyncNetworkBackend):
    """Connects by the library's own backend. A connection is for one request; `on_read` is called when some of its reply came."""

    def __init__(self, limits: ReplyLimits, on_read: Callable[[], None] = lambda: None) -> None:
        self._own, self._limits, self._on_read = httpcore2.AnyIOBackend(), limits, on_read

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> "_BoundedStream":
        stream = await self._own.connect_tcp(host, port, *args, **options)
        return _BoundedStream(stream, self._limits, self._on_read)


class _BoundedStream(httpcore2.AsyncNetworkStream):
    def __init__(
        self, stream: httpcore2.AsyncNetworkStream, limits: ReplyLimits, on_read: Callable[[], None]
    ) -> None:
        self._stream, self._limits, self._on_read = stream, limits, on_read
        self._size = self._lines = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await asyncio.sleep(0)  # a TLS stream returns what it has buffered without a turn of the event loop
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._on_read()
        self._size += len(data)
        self._lines += data.count(b"\n")
        most = self._limits
        if self._size > most.size or self._lines > most.lines:
            why = f"the reply has more than {most.size} bytes or {most.lines} lines"
            raise httpcore2.RemoteProtocolError(why)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **options: Any) -> "_BoundedStream":
        stream = await self._stream.start_tls(*args, **options)
        return _BoundedStream(stream, self._limits, self._on_read)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
