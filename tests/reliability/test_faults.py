"""What callers hear when the wire to a real engine fails: every fault, with one engine and with another to fall back on."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.app.house import Answer, GatewayFixture, configured, eventually, forget, run
from tests.app.promotion.nano import ANNIE, needs_models, running, spec_of
from tests.reliability import proxy
from tests.reliability.proxy import ACCENTED, Fault, Proxy
from tests.scale import PATIENCE

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    needs_models,
]

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
LIMITS = {"first_token": 4.0, "idle": 2.0, "total": 60.0, "connect": 2.0}
PATIENT = dict.fromkeys(LIMITS, 10 * PATIENCE)
"""Deadlines that end nothing while a test waits."""
MODELS = {"alone": ["broken"], "fallback": ["broken", "spare"]}


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

    home: GatewayFixture
    proxy: Proxy


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A real llama.cpp server; `broken` is reached by way of the proxy, `spare` is not."""
    folder = tmp_path_factory.mktemp("wire")
    async with running(spec_of(ANNIE), folder) as engine, Proxy(engine.url or "") as wire:
        url: dict[str, Any] = {"dialect": "llama-server", "driver": "url"}
        engines = {"broken": {**url, "url": wire.url}, "spare": {**url, "url": engine.url}}
        models: dict[str, dict[str, Any]] = {
            name: {"live": live, "fallback": rest, "timeouts": LIMITS}
            for name, (live, *rest) in MODELS.items()
        }
        models["patient"] = {"live": "broken", "timeouts": PATIENT}
        async with run(configured(folder / "state", engines, **models)) as home:
            await eventually(lambda: all(m.is_up for m in home.gateway.pool._backends.values()))
            yield Place(home, wire)


async def asked(at: Place, fault: Fault, model: str) -> Answer:
    """The reply to one request under this fault, when nothing of it is open any more."""
    pool = at.home.gateway.pool
    forget(pool)
    pool._backends["broken"].upstream.close()
    at.proxy.fault = fault
    try:
        answer = await at.home.ask(model=model, messages=ASKED, max_tokens=16, temperature=0, stream=True)
    finally:
        at.proxy.fault = proxy.nothing
    await eventually(lambda: at.home.is_quiet() and not pool.outstanding)
    pool._backends["broken"].upstream.close()
    await eventually(lambda: not at.proxy.open)  # a probe that met the fault may hold one for 8 s
    return answer


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_wire_is_told_or_nobody_notices(at: Place, name: str, model: str) -> None:
    """A whole reply, an honest error, or another engine's reply; counted once; nothing is left open."""
    tried, before = FAULTS[name], await at.home.metrics()
    answer = await asked(at, tried.fault, model)
    after = await at.home.metrics()
    saved = model == "fallback" and tried.code and not tried.shown
    text, ends, code = _heard(answer)
    outcome = "ok"
    if tried.code and not saved:
        outcome = "timeout" if "timeout" in tried.code else "upstream_error"
        assert (code, ends, bool(text)) == (tried.code, 0, tried.shown)
        assert answer.status == (200 if tried.shown else 504 if outcome == "timeout" else 502)
    else:
        assert (answer.status, code, ends) == (200, "", 1) and text
    for each in ("ok", "upstream_error", "timeout"):
        counted = [it("manners_requests_total", model=model, outcome=each) for it in (before, after)]
        assert counted[1] - counted[0] == (each == outcome), each
    assert (ACCENTED in text) == (name == "characters of UTF-8 split in two")
    assert "\ufffd" not in text
    moved = [it("manners_failovers_total", model=model) for it in (before, after)]
    served_by = answer.headers["x-manners-engine"]
    assert (served_by, moved[1] - moved[0]) == (("spare", 1) if saved else ("broken", 0))


def _heard(answer: Answer) -> tuple[str, int, str]:
    """The text, how often an end was told, and the error's code."""
    if answer.headers["content-type"] == "application/json":
        return "", 0, str(answer.error["code"])
    text, ends, code = "", 0, ""
    for event in answer.raw.decode().split("\n\n"):
        if not event.startswith("data: {"):
            continue
        frame = json.loads(event[6:])
        code = code or frame.get("error", {}).get("code", "")
        for choice in frame.get("choices", ()):
            text += choice["delta"].get("content") or ""
            ends += choice["finish_reason"] is not None
    return text, ends if answer.raw.endswith(b"data: [DONE]\n\n") else 0, code


async def test_a_caller_who_leaves_frees_an_engine_that_is_half_open(at: Place) -> None:
    """The gateway does not wait for the deadline of someone who is gone."""
    at.proxy.fault = FAULTS["half open: no answer"].fault
    try:
        at.home.gateway.pool._backends["broken"].upstream.close()
        async with asyncio.timeout(PATIENCE):
            request = asyncio.create_task(at.home.ask(model="patient", stream=True))
            while not at.home.gateway.pool.outstanding:
                await asyncio.sleep(0.005)
            request.cancel()
            while at.home.gateway.pool.outstanding or at.home.gateway.proxy.in_flight:
                await asyncio.sleep(0.005)
    finally:
        at.proxy.fault = FAULTS["byte by byte"].fault
    assert (await at.home.ask(model="patient", messages=[{"role": "user", "content": "Hi"}])).status == 200
