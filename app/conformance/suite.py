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

import aiohttp

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
    session: aiohttp.ClientSession

    async def ask(self, ask: Ask) -> Reply:
        """Send one request and read all of its reply."""
        model = "aloud" if ask.aloud else "annie"
        body = {"model": model, "messages": list(ask.messages), "stream": ask.stream, **ask.fields}
        url = self.front.url + "/v1/chat/completions"
        async with self.session.post(url, json=body) as response:
            raw, kind = await response.read(), response.content_type
        reply = StreamReader().read(raw) if kind == "text/event-stream" else read_whole(response.status, raw)
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
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    with tempfile.TemporaryDirectory() as state:
        config = configuration(url, dialect, Path(state), concurrency)
        async with aiohttp.ClientSession(connector=connector) as session, front(config, model) as it:
            yield Bench(it, EngineAPI(session, url, dialect), session)


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
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, IndexError) as error:
        return Result(row.name, False, f"the reply cannot be read: {error!r}")
    return Result(row.name, True)


async def run_cancel(it: Bench) -> Result:
    """A caller leaves before the first word, in mid-stream, and while it waits for a whole reply."""
    try:
        for phase in ("first word", "mid-stream", "whole"):
            await _leave(it, phase)
    except Wrong as wrong:
        return Result(CANCEL, False, str(wrong))
    except (aiohttp.ClientError, TimeoutError) as error:
        return Result(CANCEL, False, f"the reply cannot be read: {error!r}")
    return Result(CANCEL, True)


async def _leave(it: Bench, phase: str) -> None:
    body: dict[str, Any] = {"model": "annie", "messages": [user("Tell me about yourself")], **ENDLESS}
    body["stream"] = phase != "whole"
    asking = asyncio.create_task(it.session.post(it.front.url + "/v1/chat/completions", json=body))
    if phase == "mid-stream":
        reply = await asking
        need(reply.status == 200, f"status {reply.status}")
        await reply.content.readany()
        reply.close()
    else:
        need(await _until(it, lambda busy: busy, 10.0), "the engine never began")
        await hang_up(asking)
    need(
        await _until(it, lambda busy: not busy, FREE_SECONDS),
        f"left in {phase}: the engine goes on for nobody",
    )


async def hang_up(asking: "asyncio.Task[aiohttp.ClientResponse]") -> None:
    """Leave, whether the head of the reply has come or not."""
    asking.cancel()
    await asyncio.wait([asking])
    if not asking.cancelled():
        asking.result().close()


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
