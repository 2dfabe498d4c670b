"""Engines change under callers whose streams are open, and no caller notices."""

from pathlib import Path

import pytest

from app.promotion.memory_admission import MemoryAdmission
from app.promotion.state_machine import Strategy
from tests.app.house import eventually
from tests.app.promotion.stage import ENGINES, callers, settings, stage
from tests.app.promotion.stage import quick as quick
from tests.scale import scaled

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("quick")]
TURNS = scaled(2, 5)


@pytest.mark.nightly  # tests/promotion/test_load.py promotes and rolls back under the same callers
@pytest.mark.slow  # one real engine after another is started
async def test_no_reply_is_lost_or_cut_while_engines_change(tmp_path: Path) -> None:
    async with stage(tmp_path) as it, callers(it.house, 4) as crowd:
        for turn in range(TURNS):
            engine = ("large", "small")[turn % 2]
            assert (await it.promote(engine))["phase"] == "succeeded"
            assert (await it.get("/admin/status"))["models"]["annie"]["live"] == engine
        back = await it.rollback()
        assert back["phase"] == "succeeded"
        assert set(it.house.gateway.pool.running()) == {back["engine"]}
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
    assert {name for caller in crowd for name in caller.engines} == set(ENGINES)
    print(sum(caller.replies for caller in crowd), "replies")


@pytest.mark.slow  # engines are started under load: 6 s
async def test_where_both_do_not_fit_the_fallback_serves_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryAdmission, "strategy", lambda *_: Strategy.STOP_THEN_START)
    config = settings(tmp_path, fallback=["spare"])
    async with stage(tmp_path, config) as it, callers(it.house, 3) as crowd:
        await eventually(lambda: it.house.gateway.pool.is_up("spare"))
        _, begun = await it.wish("large", await it.report("large", "small"))
        steps = [
            data["effect"].split("/")[2] for _, _, data in await it.events(begun["id"]) if data.get("effect")
        ]
        assert steps[1:6] == ["lease", "route", "drain", "stop", "admit"]
        assert it.house.gateway.pool.running() == {"large", "spare"}
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
