"""An engine that fails callers while its probes pass is asked last for a while, and one caller cannot bring that about for others."""

from pathlib import Path
from typing import Any

import pytest

from app.engines.outlier import BASE_SECONDS, FAILURES, LONGEST_SECONDS, RECENT_SECONDS, OutlierDetector
from tests.app.engines.test_replicas import replicas
from tests.app.proxy.test_failover import pair
from tests.script import Hang, Head, Say, Step, role, status, text

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
async def test_an_engine_that_hangs_for_callers_only_is_asked_where_nobody_else_is_left(
    tmp_path: Path, steps: tuple[Step, ...]
) -> None:
    async with pair(tmp_path) as (home, live, spare):
        live.always(*steps)
        for _ in range(FAILURES):
            await home.ask(stream=True)
        assert (await home.log.until(1, "engine_ejected"))["engine"] == "live"
        asked = len(live.requests)
        assert (await home.ask(stream=True)).headers["x-manners-engine"] == "spare"
        assert len(live.requests) == asked
        assert not home.log.of("breaker")  # its probes pass
        live.forget()
        spare.always(*status(500))
        assert (await home.ask()).headers["x-manners-engine"] == "live"


async def test_what_a_request_forces_ejects_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path) as (home, live, _):
        live.always(Hang())
        for _ in range(FAILURES):
            assert (await home.ask(stop=["x"])).headers["x-manners-engine"] == "spare"
        live.forget()
        assert (await home.ask()).headers["x-manners-engine"] == "live"


async def test_a_request_that_every_engine_fails_ejects_none(tmp_path: Path) -> None:
    async with pair(tmp_path) as (home, live, spare):
        for engine in (live, spare):
            engine.always(Hang())
        for _ in range(FAILURES):
            await home.ask()
        assert not home.log.of("engine_ejected")


async def test_ejections_of_more_than_half_are_ignored(tmp_path: Path) -> None:
    names = ("e0", "e1", "e2")
    more: dict[str, Any] = {"live": ["e0"], "fallback": ["e1", "e2"], "timeouts": {"first_token": 0.2}}
    async with replicas(tmp_path, names, **more) as (home, engines):
        first, second, _ = engines.values()
        for engine in (first, second):
            engine.always(Hang())
        for _ in range(FAILURES):
            assert (await home.ask()).headers["x-manners-engine"] == "e2"
        await home.log.until(2, "engine_ejected")
        for engine in (first, second):
            engine.forget()
        assert (await home.ask()).headers["x-manners-engine"] == "e0"
