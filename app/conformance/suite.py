"""The conformance suite: `bench` stands before any engine, and `results` asks it all rows through the gateway.

The rows and their judges are pure (`table`, `rows`); here are the asking, and the one row that
is not question and answer: a caller who leaves.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from app.conformance.engine_api import EngineAPI
from app.conformance.gateway import Front, configuration, front
from app.conformance.reply import Reply, StreamReader, read_whole
from app.conformance.rows import Ask, Row, Wrong, need, user
from app.conformance.table import CANCEL, ROWS
from deploy.engine.abilities import Abilities
from deploy.engine.spec import Dialect

FREE_SECONDS = 3.0
"""How soon an engine must be free after its caller left; the reply itself would take longer."""
NAMES = (*(row.name for row in ROWS), CANCEL)
REPLY_SECONDS = 300.0
"""The longest silence of a reply; the gateway's own deadlines are shorter."""
ENDLESS = {"temperature": 1.0, "max_tokens": 3900, "ignore_eos": True}


@dataclass(frozen=True)
class Result:
    """One row on one engine: right, or why not."""

    name: str
    right: bool
    why: str = ""


@dataclass
class Bench:
    """A gateway before an engine, and the means to ask both."""

    front: Front
    engine: EngineAPI
    client: httpx2.AsyncClient

    async def ask(self, ask: Ask) -> Reply:
        """Send one request and read all of its reply."""
        model = "aloud" if ask.aloud else "annie"
        body = {"model": model, "messages": list(ask.messages), "stream": ask.stream, **ask.fields}
        url = self.front.url + "/v1/chat/completions"
        response = await self.client.post(url, json=body)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            reply = StreamReader().read(response.content)
        else:
            reply = read_whole(response.status_code, response.content)
        if ask.count:
            content, thought = (
                await self.engine.tokens(reply.content),
                await self.engine.tokens(reply.thought),
            )
            reply = replace(reply, content_tokens=content, thought_tokens=thought)
        return reply

    @property
    def build(self) -> str | None:
        """What the engine calls itself, where it does."""
        return self.abilities.build

    @property
    def abilities(self) -> Abilities:
        """What it was found to be able to do when the gateway came up."""
        (state,) = self.front.gateway.pool.states().values()
        return state.abilities


@asynccontextmanager
async def bench(
    url: str, dialect: Dialect, concurrency: int = 8, model: str | None = None
) -> AsyncIterator[Bench]:
    """A gateway before the engine at `url` (without /v1); without a `model`, the first that it names."""
    with tempfile.TemporaryDirectory() as state:
        config = configuration(url, dialect, Path(state), concurrency)
        async with _client() as client, front(config, model) as it:
            yield Bench(it, EngineAPI(client, url, dialect), client)


def _client() -> httpx2.AsyncClient:
    """The caller's and the engine's client: a new connection for each request, as many as are wanted at a time."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx2.AsyncClient(
        headers={"connection": "close"}, limits=limits, timeout=REPLY_SECONDS, trust_env=False
    )


async def results(it: Bench) -> AsyncIterator[Result]:
    """Every row, one after the other."""
    for row in ROWS:
        yield await run(it, row)
    yield await run_cancel(it)


async def run(it: Bench, row: Row) -> Result:
    """Ask what the row asks, and judge."""
    replies: Sequence[Reply]
    try:
        if row.together:
            replies = await asyncio.gather(*(it.ask(ask) for ask in row.asks))
        else:
            replies = [await it.ask(ask) for ask in row.asks]
        row.judge(replies)
    except Wrong as wrong:
        return Result(row.name, False, str(wrong))
    except (httpx2.HTTPError, TimeoutError, ValueError, KeyError, IndexError) as error:
        return Result(row.name, False, f"the reply cannot be read: {error!r}")
    return Result(row.name, True)


async def run_cancel(it: Bench) -> Result:
    """A caller leaves before the first word, in mid-stream, and while it waits for a whole reply."""
    try:
        for phase in ("first word", "mid-stream", "whole"):
            await _leave(it, phase)
    except Wrong as wrong:
        return Result(CANCEL, False, str(wrong))
    except (httpx2.HTTPError, TimeoutError) as error:
        return Result(CANCEL, False, f"the reply cannot be read: {error!r}")
    return Result(CANCEL, True)


async def _leave(it: Bench, phase: str) -> None:
    body: dict[str, Any] = {"model": "annie", "messages": [user("Tell me about yourself")], **ENDLESS}
    body["stream"] = phase != "whole"
    request = it.client.build_request("POST", it.front.url + "/v1/chat/completions", json=body)
    asking = asyncio.create_task(it.client.send(request, stream=True))
    if phase == "mid-stream":
        reply = await asking
        need(reply.status_code == 200, f"status {reply.status_code}")
        await anext(reply.aiter_raw(), b"")
        await reply.aclose()
    else:
        need(await _until(it, lambda busy: busy, 10.0), "the engine never began")
        await hang_up(asking)
    need(
        await _until(it, lambda busy: not busy, FREE_SECONDS),
        f"left in {phase}: the engine goes on for nobody",
    )


async def hang_up(asking: "asyncio.Task[httpx2.Response]") -> None:
    """Leave, whether the head of the reply has come or not."""
    asking.cancel()
    await asyncio.wait([asking])
    if not asking.cancelled():
        await asking.result().aclose()


async def _until(it: Bench, true: Any, seconds: float) -> bool:
    """Wait until the engine's load (or, where it does not tell, the gateway's) is as wanted."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        running = await it.engine.running()
        if true(it.front.outstanding if running is None else running):
            return True
        await asyncio.sleep(0.01)
    return False
