"""Engines change under callers whose streams are open, and no caller notices."""

from pathlib import Path

import pytest

from app.promotion.memory_admission import MemoryAdmission
from app.promotion.state_machine import Strategy
from tests.app.house import eventually
from tests.app.promotion.stage import callers, settings, stage
from tests.app.promotion.stage import quick as quick

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("quick")]


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
