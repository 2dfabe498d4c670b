"""HTTP requests to an engine, with replies bounded in bytes, lines, depth and time.

A reply of an untrusted engine may be endless, nested without end, or compressed a thousandfold: the readers here raise
ValueError. `gates.run.http` bounds the lines of a reply, and how much of it is parsed at once.
"""

import errno
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore2

from deploy.core.engine_access import OPEN, EngineAccess
from gates.run.http import BoundedBackend, ReplyLimits

LIMITS: Final = ReplyLimits(lines=16_384)
"""The most of a reply that is not read by `read_body`, such as a stream."""
MAX_BYTES: Final = 1 << 20
"""Maximum bytes of a reply. The largest one in use is `/props` with its template, some 30 KiB."""
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
MAX_DEPTH: Final = 64
"""Maximum nesting of arrays and objects."""
HEADERS: Final = {
    "accept": "*/*",
    "accept-encoding": "identity",
    "connection": "close",
    "content-type": "application/json",
}


HTTP_ERRORS: Final = (httpcore2.NetworkError, httpcore2.ProtocolError)
"""What `ask_engine` raises. There are no timeouts: callers bound the whole request with `asyncio.timeout`."""


@asynccontextmanager
async def ask_engine(
    method: str, url: str, body: Mapping[str, Any] | None = None, access: EngineAccess = OPEN
) -> AsyncIterator[httpcore2.Response]:
    """Send a request, over a new connection, which shows that the engine still accepts them; its reply, not read yet.

    No proxy, no redirects, no cookies.
    """
    headers = {"host": urlsplit(url).netloc, **HEADERS, **access.headers()}
    content = None if body is None else json.dumps(body).encode()
    backend = BoundedBackend(LIMITS)
    async with (
        httpcore2.AsyncConnectionPool(access.tls(), network_backend=backend) as pool,
        pool.stream(method, url, headers=list(headers.items()), content=content) as reply,
    ):
        yield reply


def is_hosts_fault(error: BaseException | None) -> bool:
    """Whether a connection could not be made because this host has no descriptor or no memory for it."""
    while error is not None and not (isinstance(error, OSError) and error.errno in _EXHAUSTED):
        error = error.__cause__ or error.__context__
    return error is not None


async def read_body(reply: httpcore2.Response, limit: int = MAX_BYTES) -> bytes:
    """The body of a streamed reply, not decompressed. Raises ValueError if it is longer than `limit` bytes."""
    parts, size = [], 0
    async for part in reply.aiter_stream():
        size += len(part)
        if size > limit:
            raise ValueError(f"the reply is longer than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


async def read_json(reply: httpcore2.Response) -> Any:
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
