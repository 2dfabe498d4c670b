"""The conformance suite: `open_session` puts a gateway in front of any engine, and `results` runs all checks on it.

The checks are rows, and their judge is pure (`app.conformance.checks`). Here are the requests on the wire, and the one
check that is not request and reply: a caller who disconnects.
"""

import asyncio
import io
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import structlog

from app.config.config import Address, Config, parse
from app.conformance import checks
from app.conformance.checks import CANCEL, CHECKS, Body, Check, CheckFailed, ModelLacks
from app.server import bind
from app.server import server as serving
from app.telemetry import log as logs
from app.wiring import Gateway
from deploy.core.engine_access import OPEN, EngineAccess
from deploy.core.engine_http import HTTP_ERRORS
from deploy.drivers.url import UrlEngine
from deploy.engine.dialects import DIALECTS
from deploy.engine.engine import EngineState, OnChange
from deploy.engine.probe import metric
from deploy.engine.questions import Asker
from deploy.engine.spec import EngineSpec
from gates.contracts.dialect import Dialect
from gates.contracts.sample import TimedRead
from gates.reply.reply import Reply, read_body

NEVER_BEGAN = "the engine never began"
BEGIN_SECONDS = 60.0
"""How soon an engine must begin; it may have other requests to end first."""
FREE_SECONDS = 3.0
"""How soon an engine must be idle after its caller disconnected; the reply itself would take longer."""
READY_SECONDS = 60.0
TIMEOUTS = {"connect": 10.0, "first_token": 120.0, "idle": 60.0, "total": 240.0}
CHECK_NAMES = (*(check.name for check in CHECKS), CANCEL)
REPLY_SECONDS = 300.0
"""The client's timeout for one read; the gateway's own deadlines are shorter."""
PATH = "/v1/chat/completions"
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
    """A gateway at `url` in front of an engine at `engine_url`, and a client for it."""

    gateway: Gateway
    url: str
    engine_url: str
    dialect: Dialect
    access: EngineAccess
    client: httpx2.AsyncClient

    async def ask(self, body: Body) -> Reply:
        """Send one request and read the whole reply."""
        response = await self.client.post(self.url + PATH, json=body)
        return read_body((TimedRead(0, response.content),), response.status_code)

    @property
    def state(self) -> EngineState:
        """The engine's state, with what it was found to support when the gateway started."""
        (state,) = self.gateway.pool.states().values()
        return state

    @property
    def outstanding(self) -> int:
        """Requests that hold an admission slot or an upstream connection."""
        return self.gateway.proxy.in_flight + self.gateway.pool.outstanding

    async def load(self) -> int:
        """How many requests the engine computes or has queued, by its metrics; without metrics, the gateway's own."""
        spec, count = DIALECTS[self.dialect], None
        with suppress(ValueError):  # they are no metrics
            if spec.metrics is not None:
                count = await metric(self.engine_url + spec.metrics, *spec.load, access=self.access)
        return self.outstanding if count is None else count

    async def tokens(self, text: str) -> int:
        """How many tokens this text is, by the engine's tokenizer; 0 if it has no endpoint that tells."""
        tokenize, model = DIALECTS[self.dialect].tokenize, self.state.model or ""
        with suppress(LookupError, TypeError, ValueError):  # it was started without the endpoint
            if tokenize is not None:
                asker = Asker(self.engine_url, model, self.access)
                _, said = await asker.post("/tokenize", tokenize(model, text))
                return int(said["count"]) if "count" in said else len(said["tokens"])
        return 0


def configuration(url: str, dialect: Dialect, state: Path, access: EngineAccess = OPEN) -> Config:
    """Two public models over one engine: `annie`, and `with_reasoning`, which shows its thoughts."""
    model: dict[str, Any] = {"live": "engine", "timeouts": TIMEOUTS}
    files = {name: str(path) for name, path in asdict(access).items() if path is not None}
    tables = {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(state)},
        "engines": {"engine": {"dialect": dialect, "driver": "url", "url": url, **files}},
        "models": {"annie": model, "with_reasoning": {**model, "reasoning": "separate"}},
    }
    return parse(tables, state)


@asynccontextmanager
async def run_gateway(config: Config, model: str | None = None) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway that is ready, and its public address, until the context ends. `model` is the name sent to the engine."""
    outer = structlog.get_config()

    def driver(spec: EngineSpec, state: Path, on_change: OnChange) -> UrlEngine:
        return UrlEngine(spec, on_change=on_change, model=model)

    gateway = Gateway(config, "token", logs.configure(stream=io.BytesIO()), driver)
    sock = bind(Address(host="127.0.0.1", port=0), "listen")
    server = serving(gateway.public)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    for name in config.models:
        gateway.pool.backend(config.engines["engine"], name).want()
        gateway.pool.route(name, "engine")
    try:
        async with asyncio.timeout(READY_SECONDS):
            await gateway.pool.wait_ready()
        yield gateway, f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait([task])
        await gateway.pool.stop()
        structlog.configure(**outer)


@asynccontextmanager
async def open_session(
    url: str, dialect: Dialect, model: str | None = None, access: EngineAccess = OPEN
) -> AsyncIterator[ConformanceSession]:
    """A gateway in front of the engine at `url` (without /v1). Without a `model`, the first in `/v1/models` is used."""
    with tempfile.TemporaryDirectory() as state:
        config = configuration(url, dialect, Path(state), access)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        client = httpx2.AsyncClient(limits=limits, timeout=REPLY_SECONDS, trust_env=False)
        async with client, run_gateway(config, model) as (gateway, address):
            yield ConformanceSession(gateway, address, url, dialect, access, client)


async def results(it: ConformanceSession) -> AsyncIterator[CheckOutcome]:
    """Run all checks, and then the cancel, one after the other."""
    lacking: dict[str, CheckOutcome] = {}
    for check in CHECKS:
        before = lacking.get(check.after)
        found = replace(before, name=check.name) if before else await _outcome(check.name, _run(it, check))
        if found.lacks and checks.NO_END not in found.why:  # an endless thought or call can be cut
            lacking[check.name] = found
        yield found
    yield await run_cancel(it)


async def run_cancel(it: ConformanceSession) -> CheckOutcome:
    """A caller disconnects before the first word, in mid-stream, and while it waits for a whole reply."""
    return await _outcome(CANCEL, _leave(it))


async def _outcome(name: str, running: Coroutine[Any, Any, None]) -> CheckOutcome:
    try:
        await running
    except ModelLacks as lacking:
        return CheckOutcome(name, False, f"the model: {lacking}", lacks=True)
    except CheckFailed as wrong:
        return CheckOutcome(name, False, str(wrong))
    except (httpx2.HTTPError, *HTTP_ERRORS, TimeoutError, ValueError, LookupError) as error:
        return CheckOutcome(name, False, f"the reply cannot be read: {error!r}")
    return CheckOutcome(name, True)


async def _run(it: ConformanceSession, check: Check) -> None:
    replies = [await it.ask(body) for body in check.asks]
    checks.judge(check, replies)
    if (most := check.want.budget) is not None:
        for reply in replies:
            thought = await it.tokens(reply.reasoning)
            checks.require(thought <= most, f"{thought} tokens of thought")


async def _leave(it: ConformanceSession) -> None:
    for phase in ("first word", "mid-stream", "whole"):
        spoke = asyncio.Event()
        body = {"model": "annie", "messages": [checks.ABOUT], **ENDLESS, "stream": phase != "whole"}
        asking = asyncio.create_task(_listen(it, body, spoke))
        try:
            if not await _until(it, True, BEGIN_SECONDS):
                told = asking.exception() if asking.done() else None
                raise CheckFailed(f"{NEVER_BEGAN}: {told!r}" if told else NEVER_BEGAN)
            if phase == "mid-stream":
                async with asyncio.timeout(BEGIN_SECONDS):
                    await spoke.wait()
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        freed = await _until(it, False, FREE_SECONDS)
        checks.require(freed, f"after a disconnect in {phase}, the engine goes on generating")


async def _listen(it: ConformanceSession, body: Body, spoke: asyncio.Event) -> None:
    async with it.client.stream("POST", it.url + PATH, json=body) as reply:
        async for part in reply.aiter_raw():
            checks.require(reply.status_code == 200, f"status {reply.status_code} {part[:400]!r}")
            spoke.set()


async def _until(it: ConformanceSession, busy: bool, seconds: float) -> bool:
    """Wait until the engine is busy, or idle; whether it came to that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while bool(await it.load()) is not busy:
                await asyncio.sleep(0.01)
            return True
    return False


def rated(result: CheckOutcome, dialect: Dialect) -> dict[str, str]:
    """A row to show. `heard` is "yes" for a check that passed, "gap" for a known gap of the dialect or the model, else "no"."""
    gap = result.why if result.lacks else DIALECTS[dialect].gaps.get(result.name)
    heard = "yes" if result.right else "no" if gap is None else "gap"
    return {"name": result.name, "heard": heard, "why": gap if gap and heard == "gap" else result.why}
