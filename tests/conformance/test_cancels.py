"""Callers leave a real engine at random moments: nothing is kept, here or there."""

import asyncio
import gc
import random
import struct
from socket import SO_LINGER, SOL_SOCKET
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from app.conformance.checks import MEMORY, ON, PRIYA, SUM, WEB, user
from app.conformance.suite import ENDLESS, ConformanceSession, open_session
from tests.conformance.conftest import FULL, installs
from tests.conformance.engines import Engine
from tests.reliability.watched import sample
from tests.scale import PATIENCE, scaled

pytestmark = [
    pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(480),
    *([] if installs() else [pytest.mark.nightly]),  # over llama.cpp: `make test-vllm` has the same over vLLM
]  # fmt: skip

CANCELS = scaled(60, 500)
WARM_UP = scaled(30, 100)
CALLERS = 10  # at a time; more than a model's places, so that some wait in the gateway's queue
PHASES = ("in the request", "at once", "at a moment", "at a moment", "at the first bytes")
SHORT = 40  # tokens of a reply that is not streamed, for callers who leave at its first bytes: they wait for all of it
LONGEST_WAIT = 0.25  # seconds; the random moment lies between nothing and this
NOISE_MIB = 12
SAME = ("tasks", "descriptors")
"""What may not grow."""


BODIES: tuple[dict[str, Any], ...] = (
    {"messages": [user("Tell me about yourself")], **ENDLESS},
    {"messages": [SUM], "max_tokens": 200, **ON},
    {"messages": [PRIYA], "max_tokens": 200, "tools": [MEMORY, WEB]},
    {"messages": [user("hello " * 2000)], **ENDLESS, "max_tokens": 500},
)


async def ask_and_leave(it: ConformanceSession, draw: random.Random) -> None:
    """One caller: asks something, waits for a random moment or the first bytes, and is gone."""
    address = urlsplit(it.url)
    body = {"model": "annie", "stream": draw.random() < 0.7, **draw.choice(BODIES)}
    phase = draw.choice(PHASES)
    if phase == "at the first bytes" and not body["stream"]:
        body["max_tokens"] = SHORT
    data = msgspec.json.encode(body)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(head + (data[: draw.randrange(len(data))] if phase == "in the request" else data))
    if phase == "at the first bytes":
        await reader.read(draw.choice((1, 300, 4000)))
    if phase == "at a moment":
        await asyncio.sleep(draw.uniform(0, LONGEST_WAIT))
    if draw.random() < 0.5:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
        writer.transport.abort()
    else:
        writer.close()


async def leave_often(it: ConformanceSession, count: int, draw: random.Random) -> None:
    """So many of them, some at a time, until the gateway holds nothing for any."""
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await ask_and_leave(it, draw)

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    async with asyncio.timeout(PATIENCE):
        while it.outstanding or await it.load():
            await asyncio.sleep(0.02)


@pytest.mark.slow  # a real engine computes for each caller until it has noticed: 20 s of CPU
async def test_callers_who_leave_at_random_moments_leave_nothing_behind(engine: Engine) -> None:
    if engine.kind.name not in FULL:
        return  # parsers and templates make no difference to it
    draw = random.Random(500)
    async with open_session(engine.url, engine.kind.dialect) as it:
        await leave_often(it, WARM_UP, draw)
        first = await settled(it)
        await leave_often(it, CANCELS, draw)
        last = await settled(it, first)
    print(f"\n{engine.kind.name}: {CANCELS} cancels, {first} -> {last}")
    assert {name for name in SAME if last[name] > first[name]} == set()
    assert last["rss_mib"] <= first["rss_mib"] + NOISE_MIB


async def settled(it: ConformanceSession, goal: dict[str, float] | None = None) -> dict[str, float]:
    """What is held once idle connections are closed: they are kept on purpose, and nothing else may be.

    A probe of the engine may be open at any moment, so that one look proves nothing; what was forgotten
    is still there after half a minute.
    """
    for _ in range(300):
        for member in it.gateway.pool._backends.values():
            member.upstream.close()
        await asyncio.sleep(0.1)
        gc.collect()
        now = sample(0.0)
        if goal is None or all(now[name] <= goal[name] for name in SAME):
            break
    return now
