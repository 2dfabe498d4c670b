"""However many requests are ready at once that whoever can connect may make, every stream moves between two of them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from app.access.keys import KeyRing, digest
from app.http.access import AccessControl

MANY = 50
BODY = b"{}"


async def together(one: Callable[[], Coroutine[Any, Any, Any]]) -> int:
    """Of `MANY` that begin in the same iteration of the event loop, how many end in one iteration, at most."""
    loop = asyncio.get_running_loop()
    iteration, ended = 0, Counter[int]()

    def count() -> None:
        nonlocal iteration
        iteration += 1
        if ended.total() < MANY:
            loop.call_soon(count)

    async def counted() -> None:
        await one()
        ended[iteration] += 1

    count()
    await asyncio.gather(*(counted() for _ in range(MANY)))
    return max(ended.values())


def request(
    access: AccessControl, method: str, path: str, **headers: str
) -> Callable[[], Coroutine[Any, Any, None]]:
    """One request to it, whose reply nobody reads."""

    async def one() -> None:
        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        await access({"type": "http", "method": method, "path": path, "headers": named}, receive, send)

    return one


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": BODY, "more_body": False}


async def send(message: Any) -> None:
    assert message["type"] in ("http.response.start", "http.response.body")


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": BODY})


KEY = {"authorization": "Bearer key"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "at_once"),
    [
        ("GET", "/metrics", {}, 1),
        ("GET", "/v1/models", KEY, 1),
        ("GET", "/v1/models", {}, 1),
        ("POST", "/v1/chat/completions", {"authorization": "Bearer wrong"}, 1),
        ("POST", "/v1/chat/completions", KEY, MANY),
    ],
    ids=["metrics", "models", "no key", "a wrong key", "for an engine"],
)
async def test_what_needs_no_engine_is_answered_once_in_an_iteration(
    method: str, path: str, headers: dict[str, str], at_once: int
) -> None:
    access = AccessControl(answer, KeyRing({digest("key"): "key-1"}), "/v1", {"/v1/chat/completions": answer})
    assert await together(request(access, method, path, **headers)) == at_once
