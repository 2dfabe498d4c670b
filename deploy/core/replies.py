"""Replies of an engine to questions of ours: bounded in bytes, depth and time, and read in one way.

An engine is not trusted. What it answers to a probe may be endless, nested without end, or compressed a
thousandfold. Everything here raises ValueError for such a reply, so that a caller has one thing to catch.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

MAX_BYTES: Final = 1 << 20
"""Of one reply. The largest that is asked for is `/props` with its template, some 30 KiB."""
MAX_DEPTH: Final = 64
"""Of nested arrays and objects."""
IDENTITY: Final = {"accept-encoding": "identity"}


def session(deadline_s: float | None, headers: Mapping[str, str] | None) -> aiohttp.ClientSession:
    """For questions to one engine: connections of its own, no proxy, no decompression, no cookies.

    A probe must not be answered by luck of a pooled connection, and no proxy of the environment may
    stand between. `deadline_s` bounds a connect.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, connect=deadline_s),
        headers=IDENTITY | dict(headers or {}),
        trust_env=False,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def read_body(reply: aiohttp.ClientResponse, limit: int = MAX_BYTES) -> bytes:
    """A whole body. Raises ValueError if it is longer than `limit` bytes."""
    parts, size = [], 0
    async for part in reply.content.iter_any():
        size += len(part)
        if size > limit:
            reply.close()
            raise ValueError(f"the reply is longer than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


async def read_json(reply: aiohttp.ClientResponse) -> Any:
    """The JSON of a body. Raises ValueError."""
    return parse_json(await read_body(reply))


def parse_json(data: bytes) -> Any:
    """JSON from an engine. Raises ValueError: it is none, or nested deeper than MAX_DEPTH."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH}") from None
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [value for values in inner for value in values]
        if not level:
            return value
    raise ValueError(f"JSON nested deeper than {MAX_DEPTH}")
