"""Engines change under callers whose streams are open, and no caller notices."""

from pathlib import Path

import pytest

from tests.app.promotion.stage import ENGINES, callers, stage
from tests.app.promotion.stage import quick as quick

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("quick")]


async def test_no_reply_is_lost_or_cut_while_engines_change(tmp_path: Path) -> None:
    async with stage(tmp_path) as it, callers(it.house, 4) as crowd:
        for turn in range(5):
            engine = ("large", "small")[turn % 2]
            assert (await it.promote(engine))["phase"] == "succeeded"
            assert (await it.get("/admin/status"))["models"]["annie"]["live"] == engine
        back = await it.rollback()
        assert back["phase"] == "succeeded"
        assert set(it.house.gateway.fleet.running()) == {back["engine"]}
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
    assert {name for caller in crowd for name in caller.engines} == set(ENGINES)
    print(sum(caller.replies for caller in crowd), "replies")
