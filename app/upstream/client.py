"""The connection pool of an engine.

`app.upstream.connection` carries one request on one connection. The rules here: a connection is reused only after a complete
reply with nothing behind it, and a request is sent a second time only if an idle connection closed before the engine
answered a byte.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from app.errors.tree import EngineBroke
from app.upstream.connection import DISCONNECTED, MAX_BODY_BYTES, EngineReply, ResponseHandler, unreachable
from deploy.core.engine_access import OPEN, EngineAccess

KEEP_ALIVE_SECONDS = 4.0
"""A connection that was idle for longer is not used again: uvicorn-based engines close theirs after 5 s."""
DISTRUST_SECONDS = 600.0
"""After unsolicited bytes, connections are not reused for so long: a second reply to one request would pass for the reply to
the next one."""
LATE_SECONDS = 0.1
CONNECT_TRIES = 3
"""A timeout that fires so late means that our own event loop was starved: the connect is retried (docs/reliability.md)."""


class Upstream:
    """A pool of connections to one engine. Close it when its route is gone."""

    def __init__(self, connect_timeout: float, access: EngineAccess = OPEN) -> None:
        self.connect_timeout = connect_timeout
        self._access = access
        self._idle: deque[EngineReply] = deque()
        self._distrusted_until = -math.inf
        self.open = 0  # replies outstanding

    def close(self) -> None:
        """Close the idle connections; those in use end with their replies."""
        while self._idle:
            self._idle.pop().close()

    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str], handler: ResponseHandler | None = None
    ) -> EngineReply:
        """POST a request; returns when the reply's head has come, or when the handler says so. `give_back` the reply then.

        Raises:
            EngineDown: no connection. EngineBroke: it closed before it answered. And what the handler raises.
        """
        if self._access.key_file is not None:
            headers = {**headers, **self._access.headers()}
        request, reply = _request(url, body, headers), self._used()
        self.open += 1
        try:
            if reply is not None:
                try:
                    await reply.send(request, handler)
                    return reply
                except EngineBroke as error:
                    if reply.answered or error.code != DISCONNECTED:
                        raise
            # No connection is idle, or the engine closed the idle one before it answered.
            reply = await self._connect(url)
            await reply.send(request, handler)
            return reply
        except BaseException:
            self.give_back(reply)
            raise

    async def read(
        self, url: str, body: bytes, headers: Mapping[str, str], limit: int = MAX_BODY_BYTES
    ) -> tuple[int, bool, bytes]:
        """POST a request; the reply's status, whether it is a stream, and its body. Raises as `ask`, and EngineBroke."""
        reply = await self.ask(url, body, headers)
        try:
            return reply.status, reply.is_stream, await reply.body(limit)
        finally:
            self.give_back(reply)

    def give_back(self, reply: EngineReply | None) -> None:
        """The request is over; its connection is used again if it can be."""
        self.open -= 1
        now = time.monotonic()
        if reply is None:
            return
        if not reply.is_reusable or now < self._distrusted_until:
            return reply.close()
        reply.idle_since = now
        self._idle.append(reply)
        while self._idle[0].idle_since < now - KEEP_ALIVE_SECONDS:
            self._idle.popleft().close()

    def _used(self) -> EngineReply | None:
        """An idle connection that can be used again, the newest; closes what cannot."""
        limit = time.monotonic() - KEEP_ALIVE_SECONDS
        while self._idle:
            reply = self._idle.pop()
            if reply.idle_since >= limit and reply.is_reusable and reply.is_silent:
                return reply
            reply.close()
        return None

    def _distrust(self) -> None:
        self._distrusted_until = time.monotonic() + DISTRUST_SECONDS
        self.close()

    async def _connect(self, url: str) -> EngineReply:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        tls = self._access.tls() if parts.scheme == "https" else None
        loop = asyncio.get_running_loop()
        for tries_left in reversed(range(CONNECT_TRIES)):
            late = loop.time() + self.connect_timeout + LATE_SECONDS
            try:
                async with asyncio.timeout(self.connect_timeout):
                    transport, reply = await loop.create_connection(
                        lambda: EngineReply(self._distrust), host, port, ssl=tls
                    )
                # With TLS the socket may hold handshake bytes. No retry: some engines would cause one each time.
                if reply.is_reusable and (tls is not None or reply.is_silent):
                    return reply
                transport.abort()
                told = "the engine closed the connection, or spoke, before it was asked"
                raise EngineBroke(told, DISCONNECTED)
            except OSError as error:
                if not (isinstance(error, TimeoutError) and tries_left and loop.time() > late):
                    raise unreachable(error) from error
        raise AssertionError("the last try returns or raises")


def _request(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value.isprintable()]
    more = "".join(lines).encode("latin-1", "replace")
    return b"%bcontent-length: %d\r\n%b\r\n%b" % (_head(url), len(body), more, body)


@lru_cache(256)
def _head(url: str) -> bytes:
    """The part that all requests to an address share."""
    parts = urlsplit(url)
    lines = [f"POST {parts.path} HTTP/1.1", f"host: {parts.netloc}", "content-type: application/json"]
    lines += ["accept: text/event-stream, application/json", "accept-encoding: identity", ""]
    return "\r\n".join(lines).encode("latin-1", "replace")
