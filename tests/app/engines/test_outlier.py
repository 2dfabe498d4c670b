"""An engine that fails callers while its probes pass is asked last for a while, and one caller cannot bring that about for others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.config.config import parse
from app.engines.outlier import BASE_SECONDS, FAILURES, LONGEST_SECONDS, RECENT_SECONDS, OutlierDetector
from tests.app.house import House, run
from tests.app.proxy.test_failover import pair
from tests.scale import PATIENCE
from tests.script import Hang, Head, Say, Step, role, status, text
from tests.scripted_engine import ScriptedEngine

# --------------------------------------------------------------------------------------------- pure


def eject(engine: OutlierDetector, now: float, caller: str = "annie") -> float:
    """Failures until it is ejected; for how long."""
    while not engine.ended(caller, False, now):
        pass
    return engine.until - now


def test_failures_in_a_row_eject() -> None:
    engine = OutlierDetector()
    for _ in range(FAILURES):
        for _ in range(FAILURES - 1):
            assert not engine.ended("annie", False, 0.0)
        engine.ended("annie", True, 0.0)
    assert [engine.ended("annie", False, 0.0) for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]
    assert engine.until == BASE_SECONDS


def test_each_ejection_is_longer_up_to_a_limit() -> None:
    engine, now, lasted = OutlierDetector(), 0.0, []
    for _ in range(12):
        lasted.append(eject(engine, now))
        assert not engine.ended("annie", False, now + 1.0)  # a request from before the ejection
        now = engine.until
    assert lasted == [min(n * BASE_SECONDS, LONGEST_SECONDS) for n in range(1, 13)]


def test_after_an_ejection_one_failure_is_enough_until_it_serves() -> None:
    engine = OutlierDetector()
    eject(engine, 0.0)
    assert engine.ended("annie", False, engine.until)
    engine.ended("annie", True, engine.until)
    assert not engine.ended("annie", False, engine.until)


def test_time_in_service_makes_the_next_ejection_shorter() -> None:
    engine = OutlierDetector()
    for _ in range(3):
        eject(engine, max(engine.until, 0.0))
    assert eject(engine, engine.until + 2 * BASE_SECONDS) == 2 * BASE_SECONDS


def test_one_caller_ejects_nothing_that_serves_another() -> None:
    engine = OutlierDetector()
    engine.ended("annie", True, 0.0)
    assert not any(engine.ended("mallory", False, 1.0) for _ in range(10 * FAILURES))
    assert engine.ended("annie", False, 1.0)
    engine = OutlierDetector()
    engine.ended("bo", True, 0.0)
    assert eject(engine, RECENT_SECONDS)  # it has served nobody else lately


# --------------------------------------------------------------------------------------------- live

GREY: dict[str, tuple[Step, ...]] = {
    "it gives no token": (Hang(),),
    "it falls silent": (Head(), Say(role()), Say(text("Hel")), Hang()),
}


@pytest.mark.parametrize("steps", GREY.values(), ids=GREY.keys())
async def test_an_engine_that_hangs_for_callers_only_is_left_alone(
    tmp_path: Path, steps: tuple[Step, ...]
) -> None:
    async with pair(tmp_path) as (home, live, _):
        live.always(*steps)
        for _ in range(FAILURES):
            await home.ask(stream=True)
        assert (await home.log.until(1, "engine_ejected"))["engine"] == "live"
        asked = len(live.requests)
        assert (await home.ask(stream=True)).headers["x-manners-engine"] == "spare"
        assert len(live.requests) == asked
        assert not home.log.of("breaker")  # its probes pass


async def test_ejected_engines_are_asked_where_nobody_else_is_left(tmp_path: Path) -> None:
    async with pair(tmp_path) as (home, live, spare):
        live.always(Hang())
        for _ in range(FAILURES):
            await home.ask()
        await home.log.until(1, "engine_ejected")
        live.forget()
        spare.always(*status(500))
        assert (await home.ask()).headers["x-manners-engine"] == "live"


@pytest.mark.parametrize("forced", [{"stop": ["x"]}, {"response_format": {"type": "json_object"}}])
async def test_what_a_request_forces_ejects_nothing(tmp_path: Path, forced: dict[str, Any]) -> None:
    async with pair(tmp_path) as (home, live, _):
        live.always(Hang())
        for _ in range(FAILURES):
            assert (await home.ask(**forced)).headers["x-manners-engine"] == "spare"
        live.forget()
        assert (await home.ask()).headers["x-manners-engine"] == "live"


async def test_a_request_that_every_engine_fails_ejects_none(tmp_path: Path) -> None:
    async with pair(tmp_path) as (home, live, spare):
        for engine in (live, spare):
            engine.always(Hang())
        for _ in range(FAILURES):
            await home.ask()
        assert not home.log.of("engine_ejected")


@asynccontextmanager
async def chain(base: Path, count: int) -> AsyncIterator[tuple[House, list[ScriptedEngine]]]:
    """A gateway with a live engine and fallbacks behind it."""
    engines = [ScriptedEngine() for _ in range(count)]
    for engine in engines:
        await engine.__aenter__()
    tables = {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(base)},
        "engines": {
            f"e{n}": {"dialect": "vllm", "driver": "url", "url": engine.url}
            for n, engine in enumerate(engines)
        },
        "models": {
            "annie": {
                "live": "e0",
                "fallback": [f"e{n}" for n in range(1, count)],
                "timeouts": {"first_token": 0.2},
            }
        },
    }
    try:
        async with run(parse(tables, base), engines[0]) as home, asyncio.timeout(PATIENCE):
            while not all(home.gateway.pool.is_up(f"e{n}") for n in range(count)):
                await asyncio.sleep(0.005)
            yield home, engines
    finally:
        for engine in engines:
            await engine.__aexit__()


async def test_ejections_of_more_than_half_are_ignored(tmp_path: Path) -> None:
    async with chain(tmp_path, 3) as (home, (first, second, _)):
        for engine in (first, second):
            engine.always(Hang())
        for _ in range(FAILURES):
            assert (await home.ask()).headers["x-manners-engine"] == "e2"
        await home.log.until(2, "engine_ejected")
        for engine in (first, second):
            engine.forget()
        assert (await home.ask()).headers["x-manners-engine"] == "e0"
