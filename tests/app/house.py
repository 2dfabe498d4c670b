"""The whole gateway, for real: two uvicorn servers on free ports, in the test's own event loop."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import structlog
from prometheus_client.parser import text_string_to_metric_families

from app.config.config import Address, Config, Secrets, parse
from app.engines.breaker import Breaker
from app.engines.pool import EnginePool
from app.server import bind, servers
from app.telemetry import log as logs
from app.wiring import Gateway
from tests.scale import PATIENCE
from tests.scripted_engine import ScriptedEngine

TOKEN = "operators-token"
ANYWHERE = Address(host="127.0.0.1", port=0)
MODELS = Path(__file__).parents[2] / "models"
NEVER = dict.fromkeys(("first_token", "idle", "total"), 10 * PATIENCE)
HELLO = [{"role": "user", "content": "Hello!"}]
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "web_search", "parameters": {"type": "object"}}}
]


class Tape(io.BytesIO):
    """Where the log goes; tells who waits for a line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self._rest = b""
        self._more = asyncio.Event()

    def write(self, text: Any) -> int:
        *whole, self._rest = (self._rest + bytes(text)).split(b"\n")
        self.lines += [json.loads(line) for line in whole]
        if whole:
            self._more.set()
            self._more = asyncio.Event()
        return super().write(text)

    def of(self, event: str) -> list[dict[str, Any]]:
        """The lines of this event."""
        return [line for line in self.lines if line["event"] == event]

    async def until(self, count: int, event: str) -> dict[str, Any]:
        """The `count`th line of this event."""
        async with asyncio.timeout(PATIENCE):
            while len(found := self.of(event)) < count:
                await self._more.wait()
        return found[count - 1]


@dataclass(frozen=True)
class Answer:
    """A whole HTTP reply."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.raw)

    @property
    def error(self) -> dict[str, Any]:
        """The error, which must be in OpenAI's envelope and nothing else."""
        assert self.headers["content-type"] == "application/json"
        assert self.json.keys() == {"error"}
        assert self.json["error"].keys() == {"message", "type", "code", "param"}
        assert self.json["error"]["message"]
        error: dict[str, Any] = self.json["error"]
        return error

    @property
    def frames(self) -> list[Any]:
        """The payloads of the stream; `[DONE]` stays a string."""
        assert self.headers["content-type"].startswith("text/event-stream")
        return frames(self.raw)

    @property
    def text(self) -> str:
        """What the caller may speak."""
        if self.headers["content-type"] == "application/json":
            return str(self.json["choices"][0]["message"]["content"])
        return said(self.frames)


def frames(raw: bytes) -> list[Any]:
    """The payloads of a stream that ends with a whole event."""
    *events, rest = raw.split(b"\n\n")
    assert rest == b"" and all(e.startswith(b"data: ") for e in events), raw[-200:]
    return ["[DONE]" if e == b"data: [DONE]" else json.loads(e[6:]) for e in events]


def said(stream: Sequence[Any]) -> str:
    """The text of a stream's chunks."""
    chunks = [f for f in stream if isinstance(f, dict)]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


@dataclass
class GatewayFixture:
    """A running gateway, and what tests ask of it."""

    gateway: Gateway
    url: str
    admin: str
    log: Tape
    client: aiohttp.ClientSession
    engine: ScriptedEngine
    _booked: int = 0
    _answered: set[str] = field(default_factory=set)
    _counted: dict[str, float] = field(default_factory=dict)

    async def ask(self, body: Any = None, headers: dict[str, str] | None = None, **more: Any) -> Answer:
        """POST a chat request. `body` as it is, or the usual greeting with `more` fields."""
        data = body if isinstance(body, bytes) else json.dumps(self.body(**more) if body is None else body)
        sent = {"content-type": "application/json", **(headers or {})}
        async with self.client.post(f"{self.url}/v1/chat/completions", data=data, headers=sent) as response:
            return self._note(await _answer(response))

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        """POST JSON to any path of the public listener."""
        async with self.client.post(self.url + path, json=body, headers=headers) as response:
            return self._note(await _answer(response))

    def _note(self, answer: Answer) -> Answer:
        """An engine was asked for this one, so it will be booked: a moment after its last byte."""
        if answer.headers.get("x-manners-engine", "none") != "none":
            self._answered.add(answer.headers["x-request-id"])
        return answer

    def body(self, **more: Any) -> dict[str, Any]:
        """A request body."""
        return {"model": "annie", "messages": HELLO, **more}

    def begin(self, stream: bool = True, **more: Any) -> Any:
        """A request whose reply is read by the test: `async with house.begin() as response`."""
        return self.client.post(f"{self.url}/v1/chat/completions", json=self.body(stream=stream, **more))

    async def get(self, url: str, headers: dict[str, str] | None = None) -> Answer:
        """GET from either listener."""
        async with self.client.get(url, headers=headers) as response:
            return await _answer(response)

    async def operate(self, path: str) -> Answer:
        """GET from the operators' listener, with their token."""
        return await self.get(self.admin + path, {"authorization": f"Bearer {TOKEN}"})

    async def booked(self) -> dict[str, Any]:
        """The log line of the next request that nobody looked at yet, once it is over."""
        self._booked += 1
        return await self.log.until(self._booked, "request")

    async def settle(self) -> None:
        """Between two tests: `booked` tells of the next one's requests only."""
        await self._all_booked()
        self._booked = len(self.log.of("request"))

    async def _all_booked(self) -> None:
        await eventually(lambda: self._answered <= {line["request_id"] for line in self.log.of("request")})

    async def metrics(self) -> "Scrape":
        """What Prometheus would read once all that `ask` and `post` were answered is booked."""
        await self._all_booked()
        return Scrape.of((await self.get(self.admin + "/metrics")).raw.decode())

    def is_quiet(self) -> bool:
        """Whether no place is taken and nobody waits."""
        return self.gateway.proxy.in_flight == 0


@dataclass(frozen=True)
class Scrape:
    """Samples of the metrics endpoint."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    @classmethod
    def of(cls, text: str) -> Self:
        """Read the text format."""
        families = text_string_to_metric_families(text)
        found = [s for family in families for s in family.samples]
        return cls({(s.name, frozenset(s.labels.items())): s.value for s in found})

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name that carry these labels."""
        wanted = labels.items()
        return sum(v for (n, has), v in self.samples.items() if n == name and wanted <= has)

    def labels(self, name: str, label: str) -> set[str]:
        """Every value of one label."""
        return {dict(has)[label] for (n, has) in self.samples if n == name}


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    raw = await response.read()
    return Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, raw)


def config(
    engine: ScriptedEngine | str,
    base: Path,
    *,
    dialect: str = "llama-server",
    gateway: dict[str, Any] | None = None,
    keys: tuple[str, ...] = (),
    media: list[str] | None = None,
    **model: Any,
) -> Config:
    """One public model, `annie`, on one engine, `scripted`; `model` is its table.

    Deadlines that a test does not set are longer than any test waits: what ends, ended for another reason.
    """
    url = engine if isinstance(engine, str) else engine.url
    model["timeouts"] = {**NEVER, **model.get("timeouts", {})}
    stated = {} if media is None else {"media": media}
    engines = {"scripted": {"dialect": dialect, "driver": "url", "url": url, **stated}}
    made = configured(base, engines, gateway=gateway, annie={"live": "scripted", **model})
    return made.model_copy(update={"secrets": Secrets(api_keys=keys)})


def configured(
    base: Path,
    engines: dict[str, dict[str, Any]],
    *,
    gateway: dict[str, Any] | None = None,
    **models: dict[str, Any],
) -> Config:
    """A gateway of these engines and models, at any two ports, with its state in `base`."""
    table = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(base), **(gateway or {})}
    return parse({"gateway": table, "engines": engines, "models": models}, base)


def nano(artefact: str | Path = "annie-nano-q4_k_m", *args: str) -> dict[str, Any]:
    """The table of a llama.cpp server with one of the shipped models."""
    engine = {"dialect": "llama-server", "driver": "embedded", "artefact": str(MODELS / artefact)}
    return {**engine, "args": list(args)}


@asynccontextmanager
async def run(
    config: Config, engine: Any = None, ready: bool = True, tracing: Any = None
) -> AsyncIterator[GatewayFixture]:
    """The gateway of a configuration, up and ready, until the block ends; `engine` is its scripted one."""
    tape, outer = Tape(), structlog.get_config()
    gateway = Gateway(config, TOKEN, logs.configure(stream=tape), tracing=tracing)
    sockets = [bind(ANYWHERE, "listen"), bind(ANYWHERE, "admin")]
    both = servers(gateway)
    url, admin = (f"http://127.0.0.1:{s.getsockname()[1]}" for s in sockets)
    pairs = zip(both, sockets, strict=True)
    tasks = [asyncio.create_task(server.serve(sockets=[sock])) for server, sock in pairs]
    await gateway.open()
    await gateway.promotions.start()
    async with asyncio.timeout(PATIENCE):
        if ready:
            await gateway.pool.wait_ready()
        while not all(server.started for server in both):
            await asyncio.sleep(0.001)
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with aiohttp.ClientSession(connector=connector) as client:
            yield GatewayFixture(gateway, url, admin, tape, client, engine)
    finally:
        for server in both:
            server.should_exit = True
        await asyncio.wait(tasks)
        await gateway.stop()
        structlog.configure(**outer)  # there may be a house around this one


@asynccontextmanager
async def house(base: Path, **settings: Any) -> AsyncIterator[GatewayFixture]:
    """An engine and a gateway before it; settings as in `config`."""
    async with ScriptedEngine() as engine, run(config(engine, base, **settings), engine) as it:
        yield it


def forget(pool: EnginePool) -> None:
    """Close every breaker, and forget past failures."""
    for backend in pool._backends.values():
        backend._forget_evidence()
        backend.breaker = Breaker()
        backend._decide(at_fault=False)


async def eventually(true: Callable[[], Any]) -> None:
    """Wait until something that has no event of its own is so.

    PATIENCE is far more than a busy machine needs, and less than the deadlines that `config` sets, which
    would free what a fault holds.
    """
    limit = asyncio.get_running_loop().time() + PATIENCE
    while not true():
        assert asyncio.get_running_loop().time() < limit, "it never came true"
        await asyncio.sleep(0.001)
