"""Promotions under callers whose streams are open, and one whole promotion with everything in it."""

from pathlib import Path
from typing import Any

import pytest

from tests.app.house import eventually
from tests.app.promotion.stage import Caller, Stage, callers, settings, stage
from tests.scale import scaled

pytestmark = [pytest.mark.promotion, pytest.mark.engine, pytest.mark.timeout(1800)]
PROMOTIONS = scaled(2, 50)


async def followed(it: Stage, crowd: list[Caller], begun: tuple[int, Any]) -> tuple[int, int]:
    """An operation to its good end; of all its steps the fewest callers who had a request open, and the
    fewest requests that the gateway had in hand (not those on their way in or read to the end)."""
    status, operation = begun
    assert status == 202, operation
    fewest, in_hand, after = len(crowd), len(crowd), 0
    while True:
        seen = await it.events(operation["id"], after, until="switching" if not after else None)
        fewest = min(fewest, sum(caller.asking for caller in crowd))
        in_hand = min(in_hand, it.house.gateway.proxy.in_flight)
        after, _, last = seen[-1]
        if "id" in last:
            assert last["phase"] == "succeeded", last
            return fewest, in_hand


@pytest.mark.usefixtures("quick")
async def test_promotions_to_fp4_and_back_lose_no_reply(tmp_path: Path) -> None:
    fewest = []
    # The callers are in the gateway's own loop, and take from it what a busy machine has not got.
    config = settings(tmp_path, timeouts={"connect": 10.0})
    async with stage(tmp_path, config) as it, callers(it.house, 4) as crowd:
        report = await it.report("fp4", "small")
        for _ in range(PROMOTIONS):
            fewest.append(await followed(it, crowd, await it.wish("fp4", report)))
            back = await it.post("/admin/rollback", {"model": "annie"})
            fewest.append(await followed(it, crowd, back))
        audit = await it.get("/admin/audit?newest=1")
        assert audit["chain"] == {"ok": True}
        assert it.house.gateway.pool.running() == {"small"}
        # The last one is counted then.
        await eventually(lambda: it.house.gateway.promotions._worker.running == {})
        ended = await it.house.metrics()
        assert ended("manners_promotions_total", result="succeeded") == 2 * PROMOTIONS
    replies = sum(caller.replies for caller in crowd)
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
    assert {name for caller in crowd for name in caller.engines} == {"small", "fp4"}
    assert min(asking for asking, _ in fewest) > 0
    busy = sum(in_hand > 0 for _, in_hand in fewest)
    assert busy >= len(fewest) / 2, fewest  # how many depends on how busy the machine is
    # By the rule of three, fewer than this share of requests is lost, with 95 % confidence.
    print(
        f"{PROMOTIONS} promotions from Q4_K_M to NVFP4 and {PROMOTIONS} rollbacks: {replies} replies, none lost "
        f"or cut (fewer than {3 / replies:.2%}); in {busy} of {len(fewest)} the gateway had some in hand at every step"
    )


async def test_the_stranger_is_turned_away_by_the_canary_whatever_the_door_is_told(tmp_path: Path) -> None:
    async with stage(tmp_path) as it, callers(it.house, 2) as crowd:
        waiver = {"waives": ["baseline_lineage"], "reason": "she is another model, and says so"}
        granted = await it.post("/admin/overrides", {"model": "annie", "engine": "stranger", **waiver})
        assert granted[0] == 201, granted
        status, begun = await it.wish("stranger", await it.report("stranger", "small"))
        assert status == 202, begun
        ended = await it.ended(begun["id"])
        assert (ended["phase"], ended["error"]["code"]) == ("failed", "canary_failed")
        assert it.house.gateway.pool.running() == {"small"}
    assert {name for caller in crowd for name in caller.engines} == {"small"}
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
