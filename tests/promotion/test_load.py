"""Fifty promotions under callers whose streams are open, and one whole promotion with everything in it."""

from pathlib import Path

import pytest

from tests.app.promotion.stage import ENGINES, callers, stage

pytestmark = [pytest.mark.promotion, pytest.mark.engine, pytest.mark.timeout(1800)]
PROMOTIONS = 50


@pytest.mark.usefixtures("quick")
async def test_fifty_promotions_lose_no_reply(tmp_path: Path) -> None:
    async with stage(tmp_path) as it, callers(it.house, 6) as crowd:
        for turn in range(PROMOTIONS):
            ended = await it.promote(("large", "small")[turn % 2])
            assert ended["phase"] == "succeeded", ended
        audit = await it.get("/admin/audit?newest=1")
        assert audit["chain"] == {"ok": True}
        assert it.house.gateway.fleet.running() == {"small"}
    replies = sum(caller.replies for caller in crowd)
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
    assert {name for caller in crowd for name in caller.engines} == set(ENGINES)
    # By the rule of three, fewer than this share of requests is lost, with 95 % confidence.
    print(f"{PROMOTIONS} promotions, {replies} replies, none lost: fewer than {3 / replies:.2%}")


async def test_a_candidate_is_identified_warmed_and_questioned_before_callers_are_its_own(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as it, callers(it.house, 2) as crowd:
        _, begun = await it.wish("large", await it.report("large", "small"))
        events = [data for _, kind, data in await it.events(begun["id"]) if kind == "step"]
        evidence = {data["effect"].split("/")[2]: data["evidence"] for data in events if data["effect"]}
        assert events[-1]["phase"] == "succeeded", events[-1]
    assert evidence["identify"]["model"].endswith("annie-nano-f16.gguf")
    assert evidence["warm"]["requests"] > 9
    assert all(good == n for good, n in evidence["probe"]["good"].values())
    assert evidence["watch"]["seconds"] == 0.1
    assert [wrong for caller in crowd for wrong in caller.wrong] == []


async def test_the_stranger_is_turned_away_by_the_canary_whatever_the_door_is_told(tmp_path: Path) -> None:
    async with stage(tmp_path) as it, callers(it.house, 2) as crowd:
        waiver = {"waives": ["baseline_lineage"], "reason": "she is another model, and says so"}
        granted = await it.post("/admin/overrides", {"model": "annie", "engine": "stranger", **waiver})
        assert granted[0] == 201, granted
        status, begun = await it.wish("stranger", await it.report("stranger", "small"))
        assert status == 202, begun
        ended = await it.ended(begun["id"])
        assert (ended["phase"], ended["error"]["code"]) == ("failed", "canary_failed")
        assert it.house.gateway.fleet.running() == {"small"}
    assert {name for caller in crowd for name in caller.engines} == {"small"}
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
