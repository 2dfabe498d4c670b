"""A gateway in front of one engine, in this process, for as long as a context lasts."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from app.config.config import Address, Config, parse
from app.server import bind
from app.server import server as serving
from app.telemetry import log as logs
from app.wiring import Gateway
from deploy.core.engine_access import OPEN, EngineAccess
from deploy.drivers.url import UrlEngine
from deploy.engine.engine import OnChange
from deploy.engine.spec import EngineSpec
from gates.contracts.dialect import Dialect

READY_SECONDS = 60.0
TIMEOUTS = {"connect": 10.0, "first_token": 120.0, "idle": 60.0, "total": 240.0}


def configuration(
    url: str, dialect: Dialect, state: Path, concurrency: int = 8, access: EngineAccess = OPEN
) -> Config:
    """Two public models over one engine: `annie`, and `with_reasoning`, which shows its thoughts."""
    model: dict[str, Any] = {"live": "engine", "timeouts": TIMEOUTS, "concurrency": concurrency}
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
