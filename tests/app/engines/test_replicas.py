"""Several live engines of one model: where requests go, and what becomes of them when one is gone."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from app.config.config import Config, parse
from tests.app.api.test_chat_live import MODELS
from tests.app.engines.test_killed import stream
from tests.app.house import NEVER, Answer, House, eventually, run
from tests.scale import scaled
from tests.script import Reset, status
from tests.scripted_engine import ScriptedEngine

STREAMS = scaled(80, 200)


def settings(base: Path, engines: dict[str, str], **model: Any) -> Config:
    """One model; its replicas are these engines at these addresses, unless `model` says otherwise."""
    kind = {"dialect": "llama-server", "driver": "url", "artefact": str(MODELS / "annie-nano-q4_k_m")}
    return parse(
        {
            "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(base)},
            "engines": {name: {**kind, "url": url} for name, url in engines.items()},
            "models": {"annie": {"live": list(engines), "timeouts": NEVER, **model}},
        },
        base,
    )


@asynccontextmanager
async def replicas(
    base: Path, names: Sequence[str] = ("one", "two"), **model: Any
) -> AsyncIterator[tuple[House, dict[str, ScriptedEngine]]]:
    """A gateway over scripted engines of these names, all of them up."""
    async with AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(ScriptedEngine()) for name in names}
        config = settings(base, {name: engine.url for name, engine in engines.items()}, **model)
        house = await stack.enter_async_context(run(config, next(iter(engines.values()))))
        await eventually(lambda: all(house.gateway.pool.is_up(name) for name in names))
        yield house, engines


def turn(name: str, number: int) -> list[dict[str, str]]:
    """The messages of a conversation's `number`th question."""
    said = [{"role": "system", "content": "You are Annie."}]
    for n in range(number):
        said += [{"role": "user", "content": f"{name} {n}"}, {"role": "assistant", "content": "Yes."}]
    return said[:-1]


def served_by(answer: Answer) -> str:
    assert answer.status == 200, answer.raw
    return answer.headers["x-manners-engine"]


async def test_a_conversation_stays_where_it_began_and_new_ones_are_spread(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (house, _):
        for number in (1, 2, 3):
            went = [served_by(await house.ask(messages=turn(f"caller {n}", number))) for n in range(4)]
            assert went == ["one", "two"] * 2
        metrics = await house.metrics()
        assert metrics("manners_affinity_total", model="annie", result="hit") == 8
        assert metrics("manners_affinity_total", model="annie", result="new") == 4
        assert metrics("manners_affinity_total", result="moved") == 0
        assert {name: metrics("manners_active_engine", engine=name) for name in ("one", "two")} == {
            "one": 1,
            "two": 1,
        }
        assert metrics("manners_engine_in_flight") == 0
        status = (await house.operate("/admin/status")).json["models"]["annie"]
        assert (status["live"], status["replicas"]) == ("one", ["one", "two"])
        serving = {e["name"]: e["serves"] for e in (await house.operate("/admin/engines")).json["engines"]}
        assert serving == {"one": ["annie"], "two": ["annie"]}


async def test_a_request_that_fails_goes_to_another_replica_and_then_to_the_fallback(tmp_path: Path) -> None:
    async with replicas(tmp_path, ("one", "two", "spare"), live=["one", "two"], fallback=["spare"]) as (
        house,
        engines,
    ):
        engines["one"].play(*status(500))
        assert served_by(await house.ask()) == "two"
        assert not engines["spare"].requests
        engines["one"].play(*status(500))
        engines["two"].play(*status(500))
        assert served_by(await house.ask()) == "spare"
        metrics = await house.metrics()
        assert metrics("manners_failovers_total", model="annie") == 3


async def test_a_conversation_goes_on_elsewhere_when_its_replica_is_gone(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (house, engines):
        assert served_by(await house.ask(messages=turn("x", 1))) == "one"
        engines["one"].always(Reset())
        assert served_by(await house.ask(messages=turn("x", 2))) == "two"
        assert served_by(await house.ask(messages=turn("x", 3))) == "two", "where its cache is now"


async def test_a_model_with_one_live_engine_has_no_balancer(tmp_path: Path) -> None:
    async with replicas(tmp_path, ("one",)) as (house, _):
        assert house.gateway.pool.model_route("annie").balancer is None
        assert served_by(await house.ask(messages=turn("x", 1))) == "one"
        assert (await house.metrics())("manners_affinity_total") == 0


@pytest.mark.slow
@pytest.mark.engine
async def test_one_of_two_replicas_is_killed_and_nothing_is_lost_that_had_shown_nothing(
    tmp_path: Path,
) -> None:
    """Real engines of the same weights."""
    engine = {
        "dialect": "llama-server",
        "driver": "embedded",
        "args": ["--threads-http", "256", "--threads", "1"],
    }
    weights = str(MODELS / "annie-nano-q4_k_m")
    patient = {"connect": 10.0, "first_token": 120.0, "idle": 120.0, "total": 300.0}
    tables = {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(tmp_path)},
        "engines": {name: {**engine, "artefact": weights} for name in ("one", "two")},
        "models": {"annie": {"live": ["one", "two"], "concurrency": STREAMS, "timeouts": patient}},
    }
    nobody: Any = None
    async with run(parse(tables, tmp_path), nobody) as house:
        pool = house.gateway.pool
        await eventually(lambda: pool.is_up("one") and pool.is_up("two"))
        victim = pool.states()["two"].pid
        assert victim
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            begun: set[int] = set()
            asked = [asyncio.create_task(stream(session, house, n, begun)) for n in range(STREAMS)]
            await eventually(lambda: len(begun) >= STREAMS // 5)
            open_at = {name: pool.open(name) for name in ("one", "two")}
            os.kill(victim, signal.SIGKILL)
            replies = await asyncio.gather(*asked)
        whole, broken = [r for r in replies if r["done"]], [r for r in replies if not r["done"]]
        assert all(r["status"] == 200 and r["finish"] in ("stop", "length") and r["text"] for r in whole)
        assert all(r["engine"] == "two" and r["error"] and r["text"] for r in broken), (
            "only those that had begun"
        )
        metrics = await house.metrics()
        moved = metrics("manners_failovers_total", engine="two")
        assert 0 < moved == metrics("manners_failovers_total")
        assert metrics("manners_requests_total", outcome="ok") == len(whole)
        assert min(open_at.values()) > 0, "both had something to do"
        print(
            f"{open_at} open; {len(whole)} whole, {len(broken)} told of the fault, {moved:.0f} moved unnoticed"
        )
        await eventually(lambda: house.gateway.proxy.in_flight == 0)
