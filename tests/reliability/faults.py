"""Every fault of the wire, tried with one engine and with another to fall back on."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.config.config import parse
from tests.app.house import House, eventually, run
from tests.app.promotion.nano import ANNIE, running, spec_of
from tests.reliability import proxy
from tests.reliability.proxy import Fault, Proxy
from tests.scale import PATIENCE

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
LIMITS = {"first_token": 4.0, "idle": 2.0, "total": 60.0, "connect": 2.0}
PATIENT = dict.fromkeys(LIMITS, 10 * PATIENCE)
"""Deadlines that end nothing while a test waits."""
MODELS = {"alone": ["broken"], "fallback": ["broken", "spare"]}
WHOLE = "the whole reply"


@dataclass(frozen=True)
class Tried:
    """What is done to the reply, and the error's code that one without a fallback hears ("": none).

    `shown`: some of the reply has gone out before, so nobody else may answer.
    """

    fault: Fault
    code: str = ""
    shown: bool = False


FAULTS: dict[str, Tried] = {
    "100 ms later, every read": Tried(proxy.late),
    "byte by byte": Tried(proxy.byte_by_byte),
    "characters of UTF-8 split in two": Tried(proxy.split_characters),
    "a pause inside every chunk": Tried(proxy.pause_in_a_chunk),
    "closed instead of an answer": Tried(proxy.refuse, "upstream_disconnected"),
    "reset instead of an answer": Tried(proxy.reset_at_once, "upstream_disconnected"),
    "half open: no answer": Tried(proxy.silent, "first_token_timeout"),
    "200, then closed": Tried(proxy.head_then_close, "upstream_truncated"),
    "200, then half open": Tried(proxy.head_then_silence, "first_token_timeout"),
    "reset in the middle of a chunk": Tried(proxy.reset_in_a_chunk, "upstream_truncated", shown=True),
    "closed in the middle of a chunk": Tried(proxy.close_in_a_chunk, "upstream_truncated", shown=True),
    "half open in the middle of a chunk": Tried(proxy.silence_in_a_chunk, "idle_timeout", shown=True),
    "noise between two chunks": Tried(proxy.noise_between_chunks, "upstream_malformed", shown=True),
}


@dataclass
class Place:
    """A gateway, the proxy on its way to a real engine, and the same engine without it."""

    home: House
    proxy: Proxy


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """A real llama.cpp server; `broken` is reached by way of the proxy, `spare` is not."""
    nobody: Any = None
    async with running(spec_of(ANNIE), folder) as engine, Proxy(engine.url or "") as wire:
        url = {"dialect": "llama-server", "driver": "url"}
        tables = {
            "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(folder / "state")},
            "engines": {"broken": {**url, "url": wire.url}, "spare": {**url, "url": engine.url}},
            "models": {
                name: {"live": live, "fallback": rest, "timeouts": LIMITS}
                for name, (live, *rest) in MODELS.items()
            }
            | {"patient": {"live": "broken", "timeouts": PATIENT}},
        }
        async with run(parse(tables, folder), nobody) as home:
            await eventually(lambda: all(m.is_up for m in home.gateway.pool._backends.values()))
            yield Place(home, wire)


async def rehearse(at: Place, name: str, model: str) -> dict[str, Any]:
    """One request under one fault: what the caller heard, and what the gateway counted and holds."""
    home, pool = at.home, at.home.gateway.pool
    pool.reset()
    pool._backends["broken"].upstream.close()
    before = await home.metrics()
    at.proxy.fault = FAULTS[name].fault
    try:
        answer = await home.ask(model=model, messages=ASKED, max_tokens=16, temperature=0, stream=True)
    finally:
        at.proxy.fault = proxy.nothing
    await eventually(lambda: home.is_quiet() and not pool.outstanding)
    after = await home.metrics()
    pool._backends["broken"].upstream.close()
    await eventually(lambda: not at.proxy.open)  # a probe that met the fault may hold one for 8 s
    counted = {
        outcome: int(count)
        for outcome in ("ok", "upstream_error", "timeout")
        if (count := _grown(before, after, "manners_requests_total", model=model, outcome=outcome))
    }
    heard = _heard(answer.raw, answer.headers["content-type"])
    return {
        "fault": name,
        "model": model,
        "status": answer.status,
        **heard,
        "engine": answer.headers["x-manners-engine"],
        "counted": counted,
        "failovers": int(_grown(before, after, "manners_failovers_total", model=model)),
        "open_requests": pool.outstanding,
        "open_connections": at.proxy.open,
    }


def _grown(before: Any, after: Any, metric: str, **labels: str) -> float:
    return float(after(metric, **labels) - before(metric, **labels))


def _heard(raw: bytes, content_type: str) -> dict[str, Any]:
    """The text, how often an end was told, and the error's code."""
    if content_type == "application/json":
        return {"text": "", "ends": 0, "code": json.loads(raw)["error"]["code"]}
    text, ends, code = "", 0, ""
    for event in raw.decode().split("\n\n"):
        if not event.startswith("data: {"):
            continue
        frame = json.loads(event[6:])
        code = code or frame.get("error", {}).get("code", "")
        for choice in frame.get("choices", ()):
            text += choice["delta"].get("content") or ""
            ends += choice["finish_reason"] is not None
    done = raw.endswith(b"data: [DONE]\n\n")
    return {"text": text, "ends": ends if done else 0, "code": code}
