"""An HTTP client for requests to an engine, with replies bounded in bytes, lines, depth and time.

A reply of an untrusted engine may be endless, nested without end, or compressed a thousandfold: the readers here raise
ValueError. `gates.run.bounded_stream` bounds the lines of a reply, and how much of it is parsed at once.
"""

import errno
import json
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, cast

import httpcore2
import httpx2

from deploy.core.engine_access import OPEN, EngineAccess
from gates.run.bounded_stream import BoundedBackend, ReplyLimits

LIMITS: Final = ReplyLimits(lines=16_384)
"""The most of a reply that is not read by `read_body`, such as a stream."""
MAX_BYTES: Final = 1 << 20
"""Maximum bytes of a reply. The largest one in use is `/props` with its template, some 30 KiB."""
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
MAX_DEPTH: Final = 64
"""Maximum nesting of arrays and objects."""
HEADERS: Final = {"accept": "*/*", "accept-encoding": "identity", "connection": "close"}


def engine_client(access: EngineAccess = OPEN) -> httpx2.AsyncClient:
    """A client for one engine: a new connection for each request, which shows that the engine still accepts them; no proxy,
    redirects or cookies. Callers bound the whole request with `asyncio.timeout`.
    """
    return httpx2.AsyncClient(
        headers=HEADERS | access.headers(),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        timeout=None,
        trust_env=False,
        transport=_EngineTransport(access.tls()),
    )


class _EngineTransport(httpx2.AsyncBaseTransport):
    """HTTP/1.1 over connections that are read little by little."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._connections = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=None,
            max_keepalive_connections=0,
            network_backend=BoundedBackend(LIMITS),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = httpcore2.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        body = cast("AsyncIterable[bytes]", request.stream)
        sent = httpcore2.Request(request.method, url, headers=request.headers.raw, content=body)
        with _as_httpx():
            reply = await self._connections.handle_async_request(sent)
        return httpx2.Response(reply.status, headers=reply.headers, stream=_Body(reply))

    async def aclose(self) -> None:
        await self._connections.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, reply: httpcore2.Response) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx():
            async for data in self._reply.aiter_stream():
                yield data

    async def aclose(self) -> None:
        await self._reply.aclose()


@contextmanager
def _as_httpx() -> Iterator[None]:
    """Raise the connections' errors as those of httpx2. There are no timeouts: callers bound the whole request."""
    try:
        yield
    except httpcore2.ConnectError as error:
        raise httpx2.ConnectError(str(error)) from error
    except httpcore2.NetworkError as error:
        raise httpx2.NetworkError(str(error)) from error
    except httpcore2.ProtocolError as error:
        raise httpx2.RemoteProtocolError(str(error)) from error


def is_hosts_fault(error: BaseException | None) -> bool:
    """Whether a connection could not be made because this host has no descriptor or no memory for it."""
    while error is not None and not (isinstance(error, OSError) and error.errno in _EXHAUSTED):
        error = error.__cause__ or error.__context__
    return error is not None


async def read_body(reply: httpx2.Response, limit: int = MAX_BYTES) -> bytes:
    """The body of a streamed reply, not decompressed. Raises ValueError if it is longer than `limit` bytes."""
    parts, size = [], 0
    async for part in reply.aiter_raw():
        size += len(part)
        if size > limit:
            raise ValueError(f"the reply is longer than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


async def read_json(reply: httpx2.Response) -> Any:
    """The JSON of a streamed reply's body. Raises ValueError."""
    return parse_json(await read_body(reply))


def plain_word(value: Any, most: int) -> str | None:
    """What an engine says of itself, if it is printable text of 1 to `most` characters; else None."""
    return value if isinstance(value, str) and 0 < len(value) <= most and value.isprintable() else None


def parse_json(data: bytes) -> Any:
    """JSON from an engine. Raises ValueError: it is malformed, too deep, or holds half a surrogate pair, which no file can hold."""
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH}") from None
    if _SURROGATE.search(data):
        json.dumps(value, ensure_ascii=False).encode()  # raises for a half
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [value for values in inner for value in values]
        if not level:
            return value
    raise ValueError(f"JSON nested deeper than {MAX_DEPTH}")
