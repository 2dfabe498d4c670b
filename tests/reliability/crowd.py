"""Callers of every kind, good and bad, who ask again and again and note what went wrong."""

import asyncio
import contextlib
import json
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from tests.app.house import TOOLS

MAX_WRONG = 20
JSON = {"Content-Type": "application/json"}
LAST_EVENTS = {
    "/v1/chat/completions": (b"data: [DONE]\n\n",),
    "/v1/messages": (b"event: message_stop\n",),
    "/v1/responses": (b"event: response.completed\n", b"event: response.incomplete\n"),
}
"""One of these is in a stream that is whole; `incomplete` is one that reached its `max_output_tokens`."""

ERRORS: tuple[tuple[str, Any, int], ...] = (
    ("/v1/chat/completions", {"model": "nobody", "messages": [{"role": "user", "content": "Hi"}]}, 404),
    ("/v1/chat/completions", {"model": "annie", "messages": "Hi"}, 400),
    ("/v1/chat/completions", b"{not JSON", 400),
    ("/v1/messages", {"model": "annie", "messages": []}, 400),
    ("/v1/nothing", {}, 404),
)


class Crowd:
    """Shared counts. `kinds` counts requests by what they were, `wrong` holds what must not be."""

    def __init__(self, url: str, client: aiohttp.ClientSession) -> None:
        self.url, self.client = url, client
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)
        self.kinds: Counter[str] = Counter()
        self.engines: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.wrongs = 0
        self.over = False

    async def caller(self, seed: int) -> None:
        """One caller, until it is over."""
        chance = random.Random(seed)
        names, weights = zip(*[(name, weight) for name, (weight, _) in KINDS.items()], strict=True)
        while not self.over:
            kind = chance.choices(names, weights)[0]
            try:
                async with asyncio.timeout(90):
                    said = await KINDS[kind][1](self, chance)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                said = repr(error)
            self.kinds[kind] += 1
            if said:
                self.wrongs += 1
                self.wrong = [*self.wrong, f"{kind}: {said}"][:MAX_WRONG]

    async def stream(
        self, chance: random.Random, path: str = "/v1/chat/completions", **more: Any
    ) -> str | None:
        """A stream to its end; what is wrong with it."""
        async with self.client.post(self.url + path, json=_body(chance, path, stream=True, **more)) as reply:
            raw = await reply.read()
            self.engines[reply.headers.get("x-manners-engine", "")] += 1
        ended = any(event in raw for event in LAST_EVENTS[path])
        whole = reply.status == 200 and ended and b'"error":{' not in raw
        return None if whole else f"{path} {reply.status} {raw[-200:]!r}"


def _body(chance: random.Random, path: str, **more: Any) -> dict[str, Any]:
    said = f"What is the capital of France? Question {chance.randrange(10**6)}."
    turns = "input" if path == "/v1/responses" else "messages"
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    return {"model": "annie", turns: [{"role": "user", "content": said}], limit: 24, **more}


async def _messages(crowd: Crowd, chance: random.Random) -> str | None:
    return await crowd.stream(chance, "/v1/messages")


async def _responses(crowd: Crowd, chance: random.Random) -> str | None:
    return await crowd.stream(chance, "/v1/responses")


async def _tools(crowd: Crowd, chance: random.Random) -> str | None:
    return await crowd.stream(chance, tools=TOOLS)


async def _thinks(crowd: Crowd, chance: random.Random) -> str | None:
    return await crowd.stream(chance, chat_template_kwargs={"enable_thinking": True}, max_tokens=48)


async def _whole(crowd: Crowd, chance: random.Random) -> str | None:
    path = "/v1/chat/completions"
    async with crowd.client.post(crowd.url + path, json=_body(chance, path)) as reply:
        raw = await reply.read()
    good = reply.status == 200 and json.loads(raw)["choices"][0]["finish_reason"] in ("stop", "length")
    return None if good else f"{reply.status} {raw[:200]!r}"


async def _cancels(crowd: Crowd, chance: random.Random) -> str | None:
    path = "/v1/chat/completions"
    async with crowd.client.post(crowd.url + path, json=_body(chance, path, stream=True)) as reply:
        if chance.random() < 0.7:
            await reply.content.readany()
        reply.close()
    return None if reply.status == 200 else str(reply.status)


async def _errs(crowd: Crowd, chance: random.Random) -> str | None:
    path, body, expected = chance.choice(ERRORS)
    data = body if isinstance(body, bytes) else json.dumps(body)
    async with crowd.client.post(crowd.url + path, data=data, headers=JSON) as reply:
        raw = await reply.read()
    return None if reply.status == expected and b'"error"' in raw else f"{path} {reply.status} {raw[:200]!r}"


async def _reads_slowly(crowd: Crowd, chance: random.Random) -> str | None:
    """A few bytes at a time, out of a small buffer."""
    path = "/v1/chat/completions"
    body = json.dumps(_body(chance, path, stream=True)).encode()
    loop = asyncio.get_running_loop()
    came = b""
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.setblocking(False)
        await loop.sock_connect(raw, (crowd.host, crowd.port))
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        await loop.sock_sendall(raw, head.encode() + body)
        while data := await loop.sock_recv(raw, 256):
            came += data
            await asyncio.sleep(0.02)
    return None if b"data: [DONE]" in came else repr(came[-200:])


async def _leaves_half_a_request(crowd: Crowd, chance: random.Random) -> str | None:
    _, writer = await asyncio.open_connection(crowd.host, crowd.port)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n"
    writer.write((head + b'{"model": "annie"')[: chance.randrange(1, len(head) + 17)])
    with contextlib.suppress(OSError):
        await writer.drain()
    await asyncio.sleep(chance.uniform(0, 0.05))
    writer.transport.abort()
    return None


Kind = Callable[[Crowd, random.Random], Awaitable[str | None]]
KINDS: dict[str, tuple[int, Kind]] = {
    "stream": (6, Crowd.stream),
    "whole reply": (2, _whole),
    "stream of messages": (2, _messages),
    "stream of responses": (1, _responses),
    "tools": (2, _tools),
    "thinking": (2, _thinks),
    "cancel": (3, _cancels),
    "error of the caller's": (2, _errs),
    "slow reader": (1, _reads_slowly),
    "half a request": (1, _leaves_half_a_request),
}
"""How often each is chosen, and what it does."""
