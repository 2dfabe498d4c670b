"""Operations over HTTP, each on a gateway of its own: from the wish to the end, turned back, cancelled, in turns."""

import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.promotion import repository
from app.promotion.state_machine import Action, EffectError, FailureReason
from app.promotion.steps import HANDLERS
from tests.app.promotion.stage import GOOD_WAY, settings, stage
from tests.app.promotion.stage import quick as quick
from tests.scale import PATIENCE

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[3]


def events_of(shown: list[tuple[int, str, Any]]) -> list[str]:
    return list(dict.fromkeys(data["phase"] for _, kind, data in shown if kind == "step"))


@pytest.mark.usefixtures("quick")
async def test_a_promotion_from_its_wish_to_its_end(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        report = await it.report("large", "small")
        status, begun = await it.wish("large", report, **{"idempotency-key": "k1"})
        assert status == 202 and begun["phase"] in ("queued", "preflight") and not begun["done"]
        events = await it.events(begun["id"])
        assert events_of(events) == list(GOOD_WAY)
        middle = events[5][0]
        assert await it.events(begun["id"], after=middle) == events[6:]
        shown = await it.get(f"/admin/operations/{begun['id']}")
        assert shown == events[-1][2] and shown["result"] == {"live": "large"} and "error" not in shown
        same_status, same = await it.wish("large", report, **{"idempotency-key": "k1"})
        assert (same_status, same["id"]) == (202, begun["id"])
        other_status, other = await it.wish("stranger", report, **{"idempotency-key": "k1"})
        assert (other_status, other["error"]["code"]) == (422, "idempotency_key_reused")
        _, bake = yaml.safe_load_all((ROOT / "deploy/argo/analysistemplates.yaml").read_text())
        (metric,) = bake["spec"]["metrics"]  # by which Argo Rollouts follows the bake
        told = await it.get(metric["provider"]["web"]["url"].removeprefix("{{args.admin-url}}"))
        for key in re.findall(
            r"\w+", metric["provider"]["web"]["jsonPath"].replace("{{args.model}}", "annie")
        ):
            told = told[key]
        assert metric["successCondition"].replace("{{args.engine}}", "large") == f'result == "{told}"'
        now = (await it.get("/admin/status"))["models"]["annie"]
        assert (now["live"], now["previous"], now["operation"]) == ("large", "small", None)
        assert (await it.house.ask()).headers["x-manners-engine"] == "large"
        metrics = await it.house.metrics()
        assert metrics("manners_promotions_total", result="succeeded") == 1
        assert metrics("manners_promotion_phase_seconds_count", phase="starting") == 1
        assert metrics("manners_active_engine", model="annie", engine="large") == 1
        assert metrics("manners_active_engine", model="annie", engine="small") == 0
        assert metrics("manners_live_gated", model="annie", engine="large") == 1
        assert metrics.labels("manners_live_gated", "engine") == {"large"}
        assert now["gated"] is True
        # An alert would take the engine that was retired for one that is down.
        assert metrics.labels("manners_engine_ready", "engine") == {"large"}
        audit = await it.get("/admin/audit")
        assert audit["chain"] == {"ok": True} and audit["head"]["seq"] == len(audit["events"])


@pytest.mark.slow  # engines are started and promoted: 2 s
@pytest.mark.usefixtures("quick")
async def test_while_one_runs_the_model_is_busy_and_it_can_be_cancelled_before_the_switch(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as it:
        report = await it.report("large", "small")
        _, begun = await it.wish("large", report)
        status, busy = await it.wish("large", report)
        assert (status, busy["error"]["code"]) == (409, "busy") and begun["id"] in busy["error"]["message"]
        await it.events(begun["id"], until="starting")
        assert (await it.post(f"/admin/operations/{begun['id']}/cancel"))[0] == 202
        ended = await it.ended(begun["id"])
        assert (ended["phase"], ended["error"]["code"]) == ("cancelled", "cancelled")
        assert it.house.gateway.pool.running() == {"small"}
        late, no = await it.post(f"/admin/operations/{begun['id']}/cancel")
        assert (late, no["error"]["code"]) == (409, "not_cancellable")
        assert (await it.house.ask()).headers["x-manners-engine"] == "small"


@pytest.mark.slow  # engines are started and promoted: 5 s
@pytest.mark.usefixtures("quick")
async def test_weights_that_were_replaced_while_the_gateway_was_down_are_noticed(tmp_path: Path) -> None:
    """Though their manifest still says what was promoted: the engine serves, as one that nothing vouches for."""
    config = settings(tmp_path)
    weights = shutil.copytree(config.engines["large"].artefact or "", tmp_path / "weights")
    moved = replace(config.engines["large"], artefact=weights)
    config = config.model_copy(update={"engines": {**config.engines, "large": moved}})
    async with stage(tmp_path, config) as it:
        assert (await it.promote("large"))["phase"] == "succeeded"
    with next(weights.glob("*.gguf")).open("ab") as file:
        file.write(b"\0" * 32)
    async with stage(tmp_path, config) as it:
        line = await it.house.log.until(1, "weights_changed")
        assert line["engine"] == "large"
        assert (await it.house.metrics())("manners_live_gated", model="annie", engine="large") == 0
        assert (await it.house.get(it.house.url + "/readyz")).json["ungated"] == ["annie"]
        event = (await it.get("/admin/audit?newest=1&limit=1"))["events"][0]
        assert (event["verb"], event["subject"]) == ("engine.weights_changed", "large")


@pytest.mark.slow  # engines are started and promoted: 4 s
@pytest.mark.usefixtures("quick")
async def test_an_engine_that_a_reload_has_added_can_be_promoted(tmp_path: Path) -> None:
    """The gateway goes on meanwhile; an engine of a name that is still in use has to wait for a restart."""
    async with stage(tmp_path) as it:
        late = replace(it.config.engines["large"], name="late")
        config = it.config.model_copy(update={"engines": {**it.config.engines, "late": late}})
        it.house.gateway.reloader._read = lambda: config
        assert await it.post("/admin/reload") == (200, {"changed": ["engines.late"], "keys": 0})
        assert "late" in {engine["name"] for engine in (await it.get("/admin/engines"))["engines"]}
        it.config = config
        assert (await it.promote("late", "small"))["phase"] == "succeeded"
        assert (await it.house.ask()).headers["x-manners-engine"] == "late"
    other = replace(late, args=("--ctx-size", "2048"))
    async with stage(tmp_path) as it:  # "late" serves on, though this file has it not
        config = it.config.model_copy(update={"engines": {**it.config.engines, "late": other}})
        it.house.gateway.reloader._read = lambda: config
        status, refused = await it.post("/admin/reload")
        assert (status, refused["error"]["code"]) == (409, "restart_required")
        assert "engines.late" in refused["error"]["message"]


@pytest.mark.slow  # engines are started and promoted: 2 s each
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("odd", "told"), [(float("nan"), "found"), ("\ud800", "failed")])
async def test_what_cannot_be_written_down_ends_the_operation_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: Any, told: str
) -> None:
    """An engine may say what no record can hold: the promotion fails, and the next one is begun."""

    async def identify(site: Any, plan: Any, effect: Any) -> Any:
        if told == "failed":
            raise EffectError(FailureReason("engine_down", f"it said {odd} {'x' * 99_999}"))
        return {"model": odd}

    async with stage(tmp_path) as it:
        with monkeypatch.context() as patch:
            patch.setitem(HANDLERS, Action.IDENTIFY, identify)
            ended = await it.promote("large")
        assert (ended["phase"], ended["error"]["code"]) == (
            "failed",
            "engine_down" if told == "failed" else "evidence_unreadable",
        )
        assert len(ended["error"]["message"]) < 5000
        assert it.house.gateway.pool.running() == {"small"}
        assert (await it.promote("large"))["phase"] == "succeeded"


@pytest.mark.slow  # an engine is promoted: 3 s
@pytest.mark.usefixtures("quick")
async def test_an_operation_that_a_slow_disk_takes_after_all_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator was told that the state folder does not answer; what was written then is no orphan that blocks its model."""
    begin, slow = repository.begin, threading.Event()

    def late(*given: Any, **more: Any) -> Any:
        assert slow.wait(PATIENCE)
        return begin(*given, **more)

    async with stage(tmp_path) as it:
        report = await it.report("large", "small")
        monkeypatch.setattr(repository, "begin", late)
        monkeypatch.setattr(repository, "STATE_SECONDS", 0.2)
        status, told = await it.wish("large", report)
        assert (status, told["error"]["code"]) == (503, "state_unavailable")
        monkeypatch.setattr(repository, "STATE_SECONDS", PATIENCE)
        slow.set()
        (known,) = (await it.get("/admin/operations"))["operations"]
        assert (await it.ended(known["id"]))["phase"] == "succeeded"
