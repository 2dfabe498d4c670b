"""CORS for browsers' programs on other sites (Fetch standard, 3.2), if the operator names them.

A page may read replies only if its exact origin is listed: no wildcards, no cookies, and the same keys as for everyone.
Only the public listener has it.
"""

import re
from collections.abc import Mapping
from typing import Any

from starlette.types import Send

_NAMES = re.compile(rb"[A-Za-z0-9-]{1,64}(?:, ?[A-Za-z0-9-]{1,64}){0,63}")
MAX_AGE_SECONDS = 600
"""How long a browser may keep the answer to its preflight."""
EXPOSED = (
    b"x-request-id, x-manners-engine, x-manners-ignored, retry-after, x-should-retry, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
"""Headers of a reply that a page may read."""


def _shared(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]


def share(send: Send, origin: bytes) -> None:
    """Let a page of this origin read the reply: uvicorn writes its default headers before the reply's own."""
    cycle: Any = send.__self__  # type: ignore[attr-defined]
    exposed = (b"access-control-expose-headers", EXPOSED)
    cycle.default_headers = [*cycle.default_headers, *_shared(origin), exposed]


async def answer_preflight(headers: Mapping[bytes, bytes], send: Send) -> None:
    """204, and what a browser may send: POST and GET, with headers of plain names."""
    asked = headers.get(b"access-control-request-headers", b"")
    allowed = [
        *_shared(headers[b"origin"]),
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-max-age", b"%d" % MAX_AGE_SECONDS),
    ]
    if _NAMES.fullmatch(asked):
        allowed.append((b"access-control-allow-headers", asked))
    await send({"type": "http.response.start", "status": 204, "headers": allowed})
    await send({"type": "http.response.body", "body": b""})
