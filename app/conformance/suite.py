"""The conformance suite: `open_session` puts a gateway in front of any engine, and `results` runs all checks on it.

The checks and their judges are pure (`app.conformance.checks`). Here are the requests on the wire, and the one check
that is not request and reply: a caller who disconnects.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from app.conformance.checks import (
    CANCEL,
    CHECKS,
    NO_THOUGHT,
    THINKING,
    Check,
    CheckFailed,
    CheckRequest,
    ModelLacks,
    require,
    user,
)
from app.conformance.engine_api import EngineEndpoints
from app.conformance.gateway import InProcessGateway, configuration, run_gateway
from app.conformance.reply import ObservedReply, observed
from deploy.core.engine_access import OPEN, EngineAccess
from deploy.core.engine_http import HTTP_ERRORS
from deploy.engine.abilities import Abilities
from deploy.engine.dialects import DIALECTS
from gates.contracts.dialect import Dialect

NEVER_BEGAN = "the engine never began"
BEGIN_SECONDS = 60.0
"""How soon an engine must begin; it may have other requests to end first."""
FREE_SECONDS = 3.0
"""How soon an engine must be idle after its caller disconnected; the reply itself would take longer."""
CHECK_NAMES = (*(check.name for check in CHECKS), CANCEL)
REPLY_SECONDS = 300.0
"""The client's timeout for one read; the gateway's own deadlines are shorter."""
ENDLESS = {"temperature": 0.0, "max_tokens": 3900, "ignore_eos": True}
"""Greedy, because a sampled reply may begin with a long thought, which delays the first word."""


@dataclass(frozen=True)
class CheckOutcome:
    """One check on one engine: whether it passed (`right`), or why not. `lacks`: the model does not do what it asks for."""

    name: str
    right: bool
    why: str = ""
    lacks: bool = False


@dataclass
class ConformanceSession:
    """A gateway in front of an engine, and clients for both."""

    running: InProcessGateway
    engine: EngineEndpoints
    client: httpx2.AsyncClient

    async def ask(self, ask: CheckRequest) -> ObservedReply:
        """Send one request and read the whole reply."""
        model = "with_reasoning" if ask.with_reasoning else "annie"
        body = {"model": model, "messages": list(ask.messages), "stream": ask.stream, **ask.fields}
        url = self.running.url + "/v1/chat/completions"
        response = await self.client.post(url, json=body)
        reply = observed(response.status_code, response.content)
        if not ask.count:
            return reply
        content, thought = [await self.engine.tokens(text) for text in (reply.content, reply.reasoning)]
        return replace(reply, content_tokens=content, thought_tokens=thought)

    @property
    def abilities(self) -> Abilities:
        """What the engine was found to support when the gateway started."""
        (state,) = self.running.gateway.pool.states().values()
        return state.abilities


@asynccontextmanager
async def open_session(
    url: str, dialect: Dialect, concurrency: int = 8, model: str | None = None, access: EngineAccess = OPEN
) -> AsyncIterator[ConformanceSession]:
    """A gateway in front of the engine at `url` (without /v1). Without a `model`, the first in `/v1/models` is used."""
    with tempfile.TemporaryDirectory() as state:
        config = configuration(url, dialect, Path(state), concurrency, access)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        client = httpx2.AsyncClient(limits=limits, timeout=REPLY_SECONDS, trust_env=False)
        async with client, run_gateway(config, model) as it:
            yield ConformanceSession(it, EngineEndpoints(url, dialect, access), client)


async def results(it: ConformanceSession) -> AsyncIterator[CheckOutcome]:
    """Run all checks, and then the cancel, one after the other."""
    lacking: dict[str, CheckOutcome] = {}
    for check in CHECKS:
        before = lacking.get(check.after)
        found = replace(before, name=check.name) if before else await run(it, check)
        is_endless = found.name == THINKING and NO_THOUGHT not in found.why  # such a thought can be cut
        if found.lacks and not is_endless:
            lacking[check.name] = found
        yield found
    yield await run_cancel(it)


async def run(it: ConformanceSession, check: Check) -> CheckOutcome:
    """Run one check: send its requests and judge the replies."""
    replies: Sequence[ObservedReply]
    try:
        if check.together:
            replies = await asyncio.gather(*(it.ask(ask) for ask in check.asks))
        else:
            replies = [await it.ask(ask) for ask in check.asks]
        check.judge(replies)
    except CheckFailed as wrong:
        lacks = isinstance(wrong, ModelLacks)
        return CheckOutcome(check.name, False, f"the model: {wrong}" if lacks else str(wrong), lacks)
    except (httpx2.HTTPError, *HTTP_ERRORS, TimeoutError, ValueError, LookupError) as error:
        return CheckOutcome(check.name, False, f"the reply cannot be read: {error!r}")
    return CheckOutcome(check.name, True)


async def run_cancel(it: ConformanceSession) -> CheckOutcome:
    """A caller disconnects before the first word, in mid-stream, and while it waits for a whole reply."""
    try:
        for phase in ("first word", "mid-stream", "whole"):
            await _leave(it, phase)
    except CheckFailed as wrong:
        return CheckOutcome(CANCEL, False, str(wrong))
    except (httpx2.HTTPError, *HTTP_ERRORS, TimeoutError) as error:
        return CheckOutcome(CANCEL, False, f"the reply cannot be read: {error!r}")
    return CheckOutcome(CANCEL, True)


async def _leave(it: ConformanceSession, phase: str) -> None:
    body: dict[str, Any] = {"model": "annie", "messages": [user("Tell me about yourself")], **ENDLESS}
    body["stream"] = phase != "whole"
    request = it.client.build_request("POST", it.running.url + "/v1/chat/completions", json=body)
    asking = asyncio.create_task(it.client.send(request, stream=True))
    if phase == "mid-stream":
        reply = await asking
        require(reply.status_code == 200, f"status {reply.status_code}")
        await anext(reply.aiter_raw(), b"")
        await reply.aclose()
    else:
        if not await _until(it, lambda busy: busy, BEGIN_SECONDS):
            raise CheckFailed(f"{NEVER_BEGAN}{await _answer_of(asking)}")
        await hang_up(asking)
    require(
        await _until(it, lambda busy: not busy, FREE_SECONDS),
        f"after a disconnect in {phase}, the engine goes on generating",
    )


async def _answer_of(asking: "asyncio.Task[httpx2.Response]") -> str:
    """What the engine answered instead, if it did."""
    if not asking.done():
        return ""
    if error := asking.exception():
        return f": {error!r}"
    reply = asking.result()
    body = (await reply.aread())[:400].decode("utf-8", "replace")
    return f": {reply.status_code} {body!r}"


async def hang_up(asking: "asyncio.Task[httpx2.Response]") -> None:
    """Disconnect, before or after the reply's head."""
    asking.cancel()
    await asyncio.wait([asking])
    if not asking.cancelled():
        await asking.result().aclose()


async def _until(it: ConformanceSession, true: Any, seconds: float) -> bool:
    """Wait for a load (the engine's, or the gateway's if the engine has no metrics) for which `true` holds; whether it came."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        running = await it.engine.running()
        if true(it.running.outstanding if running is None else running):
            return True
        await asyncio.sleep(0.01)
    return False


def rated(result: CheckOutcome, dialect: Dialect) -> dict[str, str]:
    """A row to show. `heard` is "yes" for a check that passed, "gap" for a known gap of the dialect or the model, else "no"."""
    gap = result.why if result.lacks else DIALECTS[dialect].gaps.get(result.name)
    heard = "yes" if result.right else "no" if gap is None else "gap"
    return {"name": result.name, "heard": heard, "why": gap if gap and heard == "gap" else result.why}
