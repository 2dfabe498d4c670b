"""CORS for browsers' programs on other sites (Fetch standard, 3.2), if the operator names them. Pure but for `send`.

A page may read replies only if its exact origin is listed: no wildcards, no cookies, and the same keys as for everyone.
Only the public listener has it.
"""

import re
from collections.abc import Mapping
from typing import Any

from starlette.types import Message, Send

_NAMES = re.compile(rb"[A-Za-z0-9-]{1,64}(?:, ?[A-Za-z0-9-]{1,64}){0,63}")
MAX_AGE_SECONDS = 600
"""How long a browser may keep the answer to its preflight."""
EXPOSED = (
    b"x-request-id, x-manners-engine, x-manners-ignored, retry-after, x-should-retry, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
"""Headers of a reply that a page may read."""
_VARY = (b"vary", b"Origin")

Headers = list[tuple[bytes, bytes]]


def preflight(headers: Mapping[bytes, bytes]) -> Headers:
    """The headers that allow what a browser asks to send: POST and GET, with headers of plain names."""
    asked = headers.get(b"access-control-request-headers", b"")
    allowed = [(b"access-control-allow-headers", asked)] if _NAMES.fullmatch(asked) else []
    return [
        *shared(headers[b"origin"]),
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-max-age", b"%d" % MAX_AGE_SECONDS),
        *allowed,
    ]


def shared(origin: bytes) -> Headers:
    """The headers that let a page of this origin read a reply."""
    return [(b"access-control-allow-origin", origin), _VARY]


def sharing(send: Send, origin: bytes) -> Send:
    """A `send` that lets a page of this origin read the reply. It costs a streamed chunk some microseconds."""
    more = [*shared(origin), (b"access-control-expose-headers", EXPOSED)]

    async def shared_send(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return shared_send


async def answer_preflight(headers: Mapping[bytes, bytes], send: Send) -> None:
    """204, and what is allowed."""
    start: dict[str, Any] = {"type": "http.response.start", "status": 204, "headers": preflight(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": b""})
