"""A load of token prompts, which measures a serving configuration independently of what its model has learned.

Prompts are random token ids, a new one for each request (nothing of them is cached), and replies run to their full
length. So a model with random weights can be timed as well as a trained one.
"""

import asyncio
import random
import time
from typing import Any

import httpx2

from deploy.profiles.variant_result import LoadFigures, TimedRequest, figures
from deploy.profiles.variants import LoadShape, MatrixTable
from gates.reply.chunks import MalformedChunk, parse_payload
from gates.reply.events import Broken, Finish, Text, Usage
from gates.reply.sse import EventTooLong, SSEDecoder

LINE_BYTES = 1 << 20
READ_SECONDS = 120.0
"""How long an engine may be silent within one reply."""


def body(table: MatrixTable, model: str, number: int) -> dict[str, Any]:
    """One request: its prompt follows from its number."""
    draw = random.Random(number)
    return {
        "model": model,
        "prompt": [draw.randrange(table.vocabulary) for _ in range(table.prompt)],
        "max_tokens": table.reply,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def run_load(url: str, model: str, table: MatrixTable, shape: LoadShape, first: int) -> LoadFigures:
    """Send one load. One request per stream goes before it and is not counted, because an engine compiles for a new batch
    size. `first` is the number of the first request."""
    # A new connection for each request: an engine may close what is kept open.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(limits=limits, timeout=READ_SECONDS, trust_env=False) as client:

        async def send(numbers: range) -> list[TimedRequest]:
            waiting, taken = list(reversed(numbers)), []

            async def stream() -> None:
                while waiting:
                    taken.append(await timed(client, url, body(table, model, waiting.pop())))

            await asyncio.gather(*(stream() for _ in range(shape.streams)))
            return taken

        await send(range(first, first + shape.streams))
        first += shape.streams
        begun = time.monotonic()
        taken = await send(range(first, first + shape.requests))
        return figures(shape.streams, time.monotonic() - begun, taken)


async def timed(client: httpx2.AsyncClient, url: str, sent: dict[str, Any]) -> TimedRequest:
    """One request and its times; a fault is its `why`."""
    begun, first, last, tokens = time.monotonic(), None, None, 0
    decoder = SSEDecoder()
    try:
        async with client.stream("POST", f"{url}/v1/completions", json=sent) as reply:
            if reply.status_code != 200:
                said = (await reply.aread())[:300].decode("utf-8", "replace")
                return TimedRequest(why=f"HTTP {reply.status_code}: {said}")
            async for data in reply.aiter_raw():
                for event in (event for payload in decoder.feed(data) for event in parse_payload(payload)):
                    if isinstance(event, Broken):
                        return TimedRequest(why=f"error in the stream: {event.message[:300]}")
                    if isinstance(event, Text | Finish):
                        last = time.monotonic() - begun
                        first = last if first is None else first
                    if isinstance(event, Usage):
                        tokens = event.tokens("completion_tokens") or tokens
    except (httpx2.HTTPError, EventTooLong, MalformedChunk) as error:
        return TimedRequest(why=f"the reply cannot be read: {error!r}")
    if first is None or not tokens:
        return TimedRequest(why="the reply holds no text, or no usage")
    return TimedRequest(first=first, last=last, tokens=tokens)
