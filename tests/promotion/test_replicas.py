"""Three replicas take the places of three others under callers whose streams are open, and go back."""

from pathlib import Path
from typing import Any, get_args

import pytest

from app.config.config import Config, parse
from app.promotion.state_machine import Strategy
from tests.app.promotion.stage import Stage, callers, stage, tables
from tests.promotion.test_load import followed
from tests.scale import scaled

pytestmark = [pytest.mark.promotion, pytest.mark.engine, pytest.mark.timeout(1800)]
ROUNDS = scaled(1, 5)
OLD, NEW = ["small", "small-2", "small-3"], ["fp4", "fp4-2", "fp4-3"]


def three(state: Path) -> Config:
    """Three of `small` are live; three of `fp4` wait."""
    made = tables(
        state, live=OLD, fallback=["spare"], timeouts={"connect": 10.0, "first_token": 60.0, "idle": 60.0}
    )
    made["promotion"] |= {"shift_weights": [30], "shift_seconds": 0.5}
    engines = made["engines"]
    for name in (*OLD, *NEW):
        engines[name] = engines[name.partition("-")[0]]
    return parse(made, state)


async def promoted(it: Stage, engines: list[str], report: str) -> tuple[int, Any]:
    return await it.post("/admin/promote", {"model": "annie", "engine": engines, "report": report})


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("strategy", get_args(Strategy))
async def test_a_promotion_of_three_and_back_loses_no_reply(
    tmp_path: Path, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path, three(tmp_path)) as it, callers(it.house, 4) as crowd:
        monkeypatch.setattr(it.house.gateway.promotions._deps.memory, "strategy", lambda loads: strategy)
        pool, report = it.house.gateway.pool, await it.report("fp4", "small")
        for _ in range(ROUNDS):
            fewest, _ = await followed(it, crowd, await promoted(it, NEW, report))
            assert pool.model_route("annie").live == tuple(NEW)
            assert pool.running() == {*NEW, "spare"} and pool.ungated == []
            back, _ = await followed(it, crowd, await it.post("/admin/rollback", {"model": "annie"}))
            assert pool.model_route("annie").live == tuple(OLD)
            assert pool.running() == {*OLD, "spare"}
            assert min(fewest, back) > 0
        assert (await it.get("/admin/audit?newest=1"))["chain"] == {"ok": True}
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
    replies = sum(caller.replies for caller in crowd)
    engines = {name for caller in crowd for name in caller.engines}
    assert engines & {*OLD} and engines & {*NEW}
    print(
        f"{strategy}: {ROUNDS} promotions of three and back: {replies} replies by {len(engines)} engines, none lost"
    )


async def test_engines_that_are_no_replicas_of_each_other_are_refused(tmp_path: Path) -> None:
    async with stage(tmp_path, three(tmp_path)) as it:
        status, refused = await promoted(it, ["fp4", "large"], await it.report("fp4", "small"))
        assert (status, refused["error"]["param"]) == (400, "engine")
        assert "'large' is no replica of 'fp4': they differ in artefact" in refused["error"]["message"]
        status, refused = await promoted(it, ["small-2"], await it.report("small", "large"))
        assert (status, refused["error"]["code"]) == (409, "already_live")
        shown = (
            await it.post(
                "/admin/promote?dry_run=1",
                {"model": "annie", "engine": NEW, "report": await it.report("fp4", "small")},
            )
        )[1]
        assert (shown["starts"], shown["stops"]) == (NEW, OLD)
