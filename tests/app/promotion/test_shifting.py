"""A share of the live traffic goes to a candidate before the switch: as much as was asked for, and back if it is bad."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.config.config import Config, parse
from app.promotion.state_machine import Action, OperationPhase
from app.promotion.steps import HANDLERS, probe
from tests.app.house import eventually
from tests.app.promotion.stage import GOOD_WAY, Stage, callers, stage, tables
from tests.app.promotion.stage import quick as quick
from tests.app.promotion.test_operations import events_of
from tests.scale import scaled

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("quick")]
LONG = 3600.0


def shifting(state: Path, weights: Sequence[int], seconds: float, **model: Any) -> Config:
    """`small` is live; a promotion shifts by these weights, for so long at each."""
    made = tables(state, timeouts={"connect": 10.0, "first_token": 60.0, "idle": 60.0}, **model)
    made["promotion"] |= {"shift_weights": list(weights), "shift_seconds": seconds}
    return parse(made, state)


async def evidence(it: Stage, operation: str) -> list[dict[str, Any]]:
    """What each weight rests on."""
    events = [data for _, kind, data in await it.events(operation) if kind == "step"]
    return [data["evidence"] for data in events if "/share/" in str(data["effect"]) and data["evidence"]]


async def conversation(it: Stage, number: int, over: asyncio.Event) -> set[str]:
    """The engines that a caller heard in one conversation, as long as traffic was split."""
    heard, said = set[str](), [{"role": "user", "content": f"Hello, I am caller {number}."}]
    while not over.is_set():
        split = it.house.gateway.pool.model_route("annie").split
        answer = await it.house.ask(it.house.body(messages=said[:40], max_tokens=8))
        assert answer.status == 200, answer.raw
        if split is not None and it.house.gateway.pool.model_route("annie").split is split:
            heard.add(answer.headers["x-manners-engine"])
            said += [
                {"role": "assistant", "content": answer.text},
                {"role": "user", "content": f"And then? {len(said)}"},
            ]
    return heard


@pytest.mark.slow  # seconds of live traffic at each weight
async def test_a_good_candidate_gets_its_share_and_then_all_and_no_reply_is_lost(tmp_path: Path) -> None:
    config = shifting(tmp_path, (20, 50), scaled(3.0, 20.0))
    async with stage(tmp_path, config) as it, callers(it.house, 3) as crowd:
        _, begun = await it.wish("large", await it.report("large", "small"))
        await it.events(begun["id"], until="shifting")
        over = asyncio.Event()
        talks = [asyncio.create_task(conversation(it, number, over)) for number in range(4)]
        shown = (await it.get("/admin/status"))["models"]["annie"]
        assert (shown["live"], shown["operation"]["phase"]) == ("small", "shifting")
        assert shown["operation"]["weight"] == (await it.house.metrics())("manners_shift_weight") == 20
        events = await it.events(begun["id"])
        over.set()
        sides = await asyncio.gather(*talks)
        assert events[-1][2]["phase"] == "succeeded", events[-1]
        phases = list(GOOD_WAY)
        phases.insert(phases.index(OperationPhase.SWITCHING), OperationPhase.SHIFTING)
        assert events_of(events) == phases
        found = await evidence(it, begun["id"])
        metrics = await it.house.metrics()
        audit = await it.get("/admin/audit?newest=1")
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
    assert all(len(heard) == 1 for heard in sides), "a conversation stays on its side"
    assert [one["weight"] for one in found] == [20, 50]
    assert found[-1]["heard"] > 0
    assert [e["detail"]["weight"] for e in audit["events"] if "weight" in e["detail"]] == [20, 50]
    assert audit["chain"] == {"ok": True} and metrics("manners_shift_weight", model="annie") == 0
    new, old = (metrics("manners_shift_requests_total", side=side) for side in ("candidate", "incumbent"))
    assert new >= 1 and old >= 1


@pytest.mark.slow  # live traffic at each weight: 3 s
async def test_an_operator_takes_the_share_back_and_what_the_candidate_had_is_answered(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, shifting(tmp_path, (50,), LONG)) as it, callers(it.house, 3) as crowd:
        _, begun = await it.wish("large", await it.report("large", "small"))
        await it.events(begun["id"], until="shifting")
        await eventually(lambda: it.house.gateway.pool.open("large") > 0)
        status, _ = await it.post("/admin/rollback", {"model": "annie"})
        assert status == 202
        ended = await it.ended(begun["id"])
        assert (ended["phase"], ended["error"]["code"]) == ("rolled_back", "turned_back")
        assert it.house.gateway.pool.running() == {"small"}
        assert (await it.get("/admin/status"))["models"]["annie"]["live"] == "small"
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
    assert {name for caller in crowd for name in caller.engines} == {"small", "large"}


@pytest.mark.slow  # until enough replies are bad
async def test_a_bad_candidate_goes_back_to_nothing_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stranger, whom nobody has questioned here; with the share of one in four, three callers of four hear annie."""
    async with stage(tmp_path, shifting(tmp_path, (25,), LONG)) as it, callers(it.house, 4) as crowd:
        waiver = {"waives": ["baseline_lineage"], "reason": "a bad candidate, for a test"}
        granted = await it.post("/admin/overrides", {"model": "annie", "engine": "stranger", **waiver})
        assert granted[0] == 201, granted
        status, begun = await it.wish("stranger", await it.report("stranger", "small"))
        assert status == 202, begun
        await it.events(begun["id"], until="shifting")
        monkeypatch.setitem(HANDLERS, Action.PROBE, probe)  # it confirms what callers hear
        events = await it.events(begun["id"])
        ended = events[-1][2]
        assert ended["phase"] == "rolled_back" and ended["error"]["code"].startswith("bake_"), ended
        assert "switching" not in events_of(events)
        assert it.house.gateway.pool.running() == {"small"}
        assert it.house.gateway.pool.model_route("annie").split is None
        metrics = await it.house.metrics()
        assert metrics("manners_promotions_total", result="rolled_back") == 1
        assert metrics("manners_shift_weight", model="annie") == 0
        new, old = (metrics("manners_shift_requests_total", side=side) for side in ("candidate", "incumbent"))
        assert (await it.house.ask()).headers["x-manners-engine"] == "small"
    wrong = [each for caller in crowd for each in caller.wrong]
    # A thought is taken out, and some replies of hers are nothing else: they end empty, or say so with a code.
    assert [each for each in wrong if "'[DONE]'" not in each and "reply_fully_filtered" not in each] == []
    assert abs(new - (new + old) / 4) <= 1
