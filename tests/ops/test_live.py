"""A real Prometheus scrapes a real gateway over real engines: every expression gives data, and an alert fires."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

import pytest
import pytest_asyncio

from tests.app.promotion.stage import hasten
from tests.ops.facts import ALERTS, PANELS, RECORDING, rules
from tests.ops.prometheus import Prometheus, binary, prometheus
from tests.ops.scene import Scene, scene

pytestmark = [pytest.mark.ops, pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

NO_FAILOVER = "every engine was well, so no request left one"
EMPTY = {
    "Requests moved to another engine, a minute": NO_FAILOVER,
    "reason:manners_failovers:increase15m": NO_FAILOVER,
    "Requests a minute over their key's limits": "nobody here calls with a key that has limits",
    "Thoughts cut a minute": "the engine keeps every budget",
}
"""Panels and recorded series that are empty while all is well, and why."""
NO_ERROR = "no request failed or was turned away"
ABSENT = {
    "MannersErrors": NO_ERROR,
    "MannersBusy": NO_ERROR,
    "MannersFailovers": NO_FAILOVER,
    "MannersScrapeAbsent": "it asks for what is not there",
}
"""Alerts whose expression is empty even without its threshold, and why."""
TOLD = {"MannersBreach", "MannersFirstContentLate", "MannersLiveUngated", "MannersPromotionFailed"}
"""Alerts that fire over these callers, and rightly: the model `hasty` thinks aloud, a machine that does other
things besides is late, one promotion fails, and the engines of the configuration serve without a report."""


@dataclass
class Watched:
    """A gateway and the Prometheus that watches it."""

    scene: Scene
    prometheus: Prometheus


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    """After enough talk, a promotion, a rollback and a promotion that fails, seen by enough scrapes."""
    binary("prometheus")
    with pytest.MonkeyPatch.context() as patch:
        hasten(patch)
        async with (
            scene(tmp_path_factory.mktemp("scene")) as it,
            prometheus(tmp_path_factory.mktemp("prometheus"), it.target) as watcher,
        ):
            await it.talk(1)
            await seen(watcher, "manners_requests_total", 1)
            assert await it.under_load(it.promote("annie-fp4")) == ("succeeded", {200})
            await seen(watcher, "manners_promotions_total", 1)
            assert await it.under_load(it.roll_back()) == ("succeeded", {200})
            assert await it.promote("annie-lame") == "failed"
            await seen(watcher, "manners_promotions_total", 3)
            assert set(await it.talk(2)) == {200}
            asked = (await it.house.metrics())("manners_requests_total")
            await seen(watcher, "manners_requests_total", asked)
            yield Watched(it, watcher)


async def seen(watcher: Prometheus, counter: str, count: float) -> None:
    """Until a scrape has so many, and every rule has been evaluated since: what is recorded before anybody
    asked is zero of zero, and what was scraped once has no increase."""

    async def counted() -> bool:
        found = await watcher.ask(f"sum({counter})")
        return bool(found) and found[0][1] >= count

    await watcher.until(counted)
    ((_, scraped),) = await watcher.ask("timestamp(up)")

    async def evaluated() -> bool:
        groups = (await watcher.get("rules"))["groups"]
        return all(datetime.fromisoformat(group["lastEvaluation"]).timestamp() > scraped for group in groups)

    await watcher.until(evaluated)


@pytest.mark.parametrize("title, expr", PANELS, ids=[f"{i}-{title}" for i, (title, _) in enumerate(PANELS)])
async def test_every_panel_shows_something(watched: Watched, title: str, expr: str) -> None:
    """And what shows nothing while all is well is known, with the reason."""
    found = await watched.prometheus.ask(expr)
    assert bool(found) != (title in EMPTY), EMPTY.get(title, f"{title}: no data: {expr}")
    assert not found or any(value == value for _, value in found), f"{title}: only NaN"


@pytest.mark.parametrize("name, expr", rules(RECORDING, "record"))
async def test_every_recorded_series_is_recorded(watched: Watched, name: str, expr: str) -> None:
    assert bool(await watched.prometheus.ask(name)) != (name in EMPTY)


@pytest.mark.parametrize("name, expr", rules(ALERTS, "alert"))
async def test_every_alert_asks_for_what_is_there(watched: Watched, name: str, expr: str) -> None:
    """Asked for the comparison's result instead of for what passes it, it gives data."""
    without = re.sub(r" (==|[<>]=?) ", r" \1 bool ", expr)
    assert bool(await watched.prometheus.ask(without)) != (name in ABSENT), ABSENT.get(name, without)


async def test_no_rule_fails_and_nothing_fires_but_what_should(watched: Watched) -> None:
    groups = (await watched.prometheus.get("rules"))["groups"]
    assert sum(len(group["rules"]) for group in groups) == len(
        rules(RECORDING, "record") + rules(ALERTS, "alert")
    )
    assert [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")] == []
    assert await watched.prometheus.firing() <= TOLD


async def test_the_first_promotion_since_the_start_that_fails_is_told(watched: Watched) -> None:
    """Its counter begins at 0: from nothing to 1 is no increase."""
    await watched.prometheus.until_told("MannersPromotionFailed")


async def test_the_alert_fires_when_the_engine_is_killed_and_ends_when_it_is_back(watched: Watched) -> None:
    """Callers hear the fallback meanwhile; the panels that were empty show where requests went."""
    assert set(await watched.scene.kill()) == {200}
    await watched.prometheus.until_told("MannersNoLiveEngine")
    (moved,) = (expr for title, expr in PANELS if EMPTY.get(title) == NO_FAILOVER)

    async def is_shown() -> bool:  # a rate needs a second scrape
        return {labels["engine"] for labels, _ in await watched.prometheus.ask(moved)} == {"annie-q4"}

    await watched.prometheus.until(is_shown)
    watched.scene.mend()
    await watched.prometheus.until_told("MannersNoLiveEngine", fires=False)
    assert set(await watched.scene.talk(1)) == {200}
