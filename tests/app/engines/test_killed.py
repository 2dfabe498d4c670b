"""A real engine is killed under many streams: nobody sees a false finish, and the counts add up."""

import asyncio
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from app.config.config import Config
from tests.app.house import GatewayFixture, configured, eventually, nano, run
from tests.scale import scaled

STREAMS = scaled(80, 200)
pytestmark = pytest.mark.engine


def settings(base: Path) -> Config:
    engines = {
        "live": nano("annie-nano-q4_k_m", "--threads-http", "256"),
        "spare": nano("annie-nano-f16", "--threads-http", "256"),
    }
    limits = {"first_token": 60.0, "idle": 30.0, "total": 100.0}
    model = {"live": "live", "fallback": ["spare"], "concurrency": STREAMS, "timeouts": limits}
    return configured(base, engines, annie=model)


async def stream(
    session: aiohttp.ClientSession, house: GatewayFixture, number: int, begun: set[int]
) -> dict[str, Any]:
    """One caller: what it heard, how it ended, and who served it. `begun` are those who have heard a word."""
    message = {"role": "user", "content": f"What is the capital of France? This is question {number}."}
    body = {"model": "annie", "stream": True, "messages": [message], "max_tokens": 24}
    heard: dict[str, Any] = {
        "text": "",
        "finish": None,
        "error": None,
        "done": False,
        "status": 0,
        "engine": "",
    }
    async with session.post(f"{house.url}/v1/chat/completions", json=body) as response:
        heard |= {"status": response.status, "engine": response.headers["x-manners-engine"]}
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            if line == b"data: [DONE]\n":
                heard["done"] = True
                continue
            frame = json.loads(line[6:])
            heard["error"] = frame.get("error", {}).get("code") or heard["error"]
            for choice in frame.get("choices", ()):
                heard["text"] += choice["delta"].get("content") or ""
                if heard["text"]:
                    begun.add(number)
                heard["finish"] = choice["finish_reason"] or heard["finish"]
    return heard


async def asked_of_a_stopped(
    session: aiohttp.ClientSession, house: GatewayFixture, victim: int, count: int, enough: int
) -> list[asyncio.Task[dict[str, Any]]]:
    """So many callers. The process `victim` is stopped when `enough` of the first half have heard a word, before the others
    come: of what they asked it has shown nothing when it is killed, however fast it is."""
    begun: set[int] = set()

    def asking(numbers: range) -> list[asyncio.Task[dict[str, Any]]]:
        return [asyncio.create_task(stream(session, house, n, begun)) for n in numbers]

    asked = asking(range(count // 2))
    await eventually(lambda: len(begun) >= enough)
    os.kill(victim, signal.SIGSTOP)
    asked += asking(range(count // 2, count))
    await eventually(lambda: house.gateway.proxy.in_flight + sum(one.done() for one in asked) == count)
    return asked


@pytest.mark.slow  # engines are killed and started again: 5 s
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.nightly)]
)  # the same at another moment
async def test_no_caller_sees_a_false_finish_when_the_live_engine_is_killed(
    tmp_path: Path, seed: int
) -> None:
    async with run(settings(tmp_path)) as house:
        states = house.gateway.pool.states
        await eventually(lambda: len(states()) == 2 and all(s.url for s in states().values()))
        victim = states()["live"].pid
        assert victim
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            enough = random.Random(seed).randrange(STREAMS // 10, STREAMS // 2)
            asked = await asked_of_a_stopped(session, house, victim, STREAMS, enough)
            os.kill(victim, signal.SIGKILL)
            replies = await asyncio.gather(*asked)
        whole = [r for r in replies if r["done"]]
        broken = [r for r in replies if not r["done"]]
        for reply in whole:
            assert reply["status"] == 200 and reply["finish"] in ("stop", "length")
            assert reply["error"] is None and reply["text"]
        for reply in broken:
            assert reply["error"] and reply["finish"] is None
            assert reply["text"], "a stream that had shown nothing completes on the fallback"
            assert reply["engine"] == "live"
        await house.log.until(STREAMS, "request")  # a request is counted after its last byte has left
        metrics = await house.metrics()
        moved = metrics("manners_failovers_total")
        assert metrics("manners_requests_total", outcome="ok") == len(whole)
        assert metrics("manners_requests_total", outcome="upstream_error") == len(broken)
        assert metrics("manners_requests_total") == STREAMS
        assert 0 < moved <= sum(r["engine"] == "spare" for r in replies)
        print(f"{len(whole)} whole, {len(broken)} told of the fault, {moved:.0f} moved unnoticed")
        assert house.gateway.proxy.in_flight == 0
