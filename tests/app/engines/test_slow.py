"""An engine that is slow is not dead: while no other one is there, requests keep going to it."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from app.engines import backend
from app.engines.backend import FIRST_TOKEN_SECONDS, PATIENCE, Backend
from app.engines.breaker import Breaker, BreakerState
from deploy.engine.probe import work_done
from tests.app.house import GatewayFixture, eventually, house
from tests.app.proxy.test_deadlines import Clock
from tests.app.proxy.test_failover import pair
from tests.script import Hang, Head, Say, Step, Until, finish, reply, text
from tests.scripted_engine import ScriptedEngine

LEARNED = {"first_token": None, "idle": 200.0, "total": 900.0}
"""Of the first token nothing is configured."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    it = Clock()
    monkeypatch.setattr(time, "perf_counter", it)
    return it


def the_backend(home: GatewayFixture) -> Backend:
    (one,) = home.gateway.pool._backends.values()
    return one


def late(go: asyncio.Event) -> tuple[Step, ...]:
    return (Head(), Until(go), Say(text("At last.")), Say(finish()))


async def test_the_only_engine_has_until_the_end_of_the_request(tmp_path: Path, clock: Clock) -> None:
    go = asyncio.Event()
    async with house(tmp_path, timeouts=LEARNED) as home:
        home.engine.play(*late(go))
        asking = asyncio.create_task(home.ask())
        await home.engine.request()
        for _ in range(20):
            await clock.passes(home, FIRST_TOKEN_SECONDS)
        assert not asking.done()
        go.set()
        assert (await asking).text == "At last."
        home.engine.play(Hang())
        asking = asyncio.create_task(home.ask())
        await home.engine.request(2)
        await clock.passes(home, 900.0)
        answer = await asking
        assert (answer.status, answer.error["code"]) == (504, "total_timeout")


async def test_where_another_one_is_up_the_first_may_take_four_times_its_slowest(
    tmp_path: Path, clock: Clock
) -> None:
    async with pair(tmp_path, timeouts=LEARNED) as (home, live, _):
        home.gateway.pool._backends["live"].record_success(2 * FIRST_TOKEN_SECONDS / PATIENCE)
        live.play(Hang())
        asking = asyncio.create_task(home.ask())
        await live.request()
        await clock.passes(home, 1.5 * FIRST_TOKEN_SECONDS)
        assert not asking.done()
        await clock.passes(home, FIRST_TOKEN_SECONDS)
        assert (await asking).headers["x-manners-engine"] == "spare"


async def test_an_engine_that_was_slow_once_is_not_for_ever(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        one = the_backend(home)
        one.record_success(100.0)
        assert home.gateway.pool.first("annie", {}).patience == PATIENCE * 100.0
        for _ in range(200):
            one.record_success(0.1)
        assert home.gateway.pool.first("annie", {}).patience == FIRST_TOKEN_SECONDS


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(backend, "LOOK_SECONDS", 0.01)


@pytest.mark.parametrize(
    ("probes", "status"),
    [((Hang(),), 200), (reply(""), 503), ((Head(500),), 503)],
    ids=["silence", "no token", "an error"],
)
async def test_an_engine_that_fails_its_probes_by_silence_alone_is_the_last_resort(
    tmp_path: Path, hasty: None, probes: tuple[Step, ...], status: int
) -> None:
    async with house(tmp_path, timeouts=LEARNED) as home:
        home.engine.probes = probes
        one = the_backend(home)
        one.breaker = Breaker(BreakerState.SUSPECT)
        one._probe_wanted.set()
        await eventually(lambda: not one.breaker.passes)
        assert (await home.ask()).status == status


METRICS = {
    "vllm": "vllm:generation_tokens_total",
    "llama-server": "llamacpp:n_decode_total",
    "sglang": "sglang:prompt_tokens_total",
}


@pytest.mark.parametrize(("dialect", "name"), METRICS.items())
async def test_an_engine_tells_what_it_has_computed(dialect: Any, name: str) -> None:
    async with ScriptedEngine() as engine:
        assert await work_done(engine.url, dialect) is None
        engine.metrics = lambda: (
            f'# HELP {name} of all\n{name}{{model="x"}} 41\n{name}{{model="y"}} 1.0\nother 7\n'
        )
        assert await work_done(engine.url, dialect) == 42
        assert await work_done(engine.url, "openai") is None


@pytest.mark.parametrize("computes", [True, False])
async def test_an_engine_that_computes_meanwhile_is_busy_and_not_broken(
    tmp_path: Path, hasty: None, computes: bool
) -> None:
    async with house(tmp_path, dialect="llama-server") as home:
        home.engine.probes = (Hang(),)
        step = 1 if computes else 0

        def metrics() -> str:
            nonlocal step
            step += computes
            return f"llamacpp:n_decode_total {step}\n"

        home.engine.metrics = metrics
        one = the_backend(home)
        one.breaker = Breaker(BreakerState.SUSPECT)
        before = home.engine.probed
        one._probe_wanted.set()
        await eventually(
            lambda: home.engine.probed > before and one.breaker.state is not BreakerState.SUSPECT
        )
        assert one.breaker.passes is computes


async def test_an_engine_of_which_nothing_is_known_is_asked_until_it_is(
    tmp_path: Path, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "RECHECK_SECONDS", 0.05)
    async with house(tmp_path, dialect="openai") as home:
        pool = home.gateway.pool
        assert pool.first("annie", {}).control == "unverified"
        await eventually(lambda: pool.first("annie", {}).control == "verified")
        assert home.log.of("engine_cleared")
