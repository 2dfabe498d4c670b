"""The operators' API over HTTP: what is asked, what is answered, and with which code it is refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.config import parse
from gates.report import dsse
from gates.report.statement import Engine, Model, Pinned, stamp
from gates.verdict import Verdict
from tests.app.house import eventually
from tests.app.promotion.stage import OPERATOR, Stage, settings, signed, stage, statement, tables
from tests.app.promotion.stage import quick as quick
from tests.gates.report import examples
from tests.gates.report.examples import OTHER_KEY, sha

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def it(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One gateway for the tests that leave it as it was: `small` live, nothing before it."""
    async with stage(tmp_path_factory.mktemp("state")) as found:
        yield found


def events_of(shown: list[tuple[int, str, Any]]) -> list[str]:
    return list(dict.fromkeys(data["phase"] for _, kind, data in shown if kind == "step"))


# ----------------------------------------------------------------------------------- refusals


async def old(it: Stage) -> str:
    return await it.report("large", "small", created=stamp(datetime.now(UTC) - timedelta(days=8)))


async def failed(it: Stage) -> str:
    return await it.report(
        "large", "small", decision=replace(examples.passing().decision, verdict=Verdict.FAIL)
    )


async def by_a_stranger(it: Stage) -> str:
    envelope = dsse.parse(signed(it.config, statement(it.config, "large", "small")))
    data = dsse.render(dsse.sign(envelope.payload, OTHER_KEY))
    status, body = await it.post("/admin/reports", data)
    assert (status, body["trusted"]) == (201, False)
    return str(body["digest"])


async def of_other_weights(it: Stage) -> str:
    return await it.report("stranger", "small")


async def of_another_engine(it: Stage) -> str:
    made = statement(it.config, "large", "small")
    engine: Engine = replace(made.candidate.engine, argv=("--ctx-size", "1024"))
    return await it.report("large", "small", candidate=replace(made.candidate, engine=engine))


async def of_another_suite(it: Stage) -> str:
    return await it.report("large", "small", suite=Pinned("easy", None, sha("easy")))


async def under_another_policy(it: Stage) -> str:
    return await it.report("large", "small", policy=Pinned("lax", None, sha("lax")))


async def beside_another_model(it: Stage) -> str:
    made = statement(it.config, "large", "small")
    other = Model("other", "hf-bf16", sha("other"), "somebody/else", {})
    return await it.report("large", "small", baseline=replace(made.baseline, model=other))


async def revoked(it: Stage) -> str:
    report = await it.report("large", "small", created=stamp(datetime.now(UTC) - timedelta(hours=1)))
    status, _ = await it.post("/admin/revoke", {"thing": "report", "id": report, "reason": "made by mistake"})
    assert status == 201
    return report


async def nowhere(it: Stage) -> str:
    return sha("nowhere")


REFUSALS: dict[str, Callable[[Stage], Awaitable[str]]] = {
    "report_missing": nowhere,
    "report_signature": by_a_stranger,
    "report_stale": old,
    "verdict_not_pass": failed,
    "mismatch_artefact": of_other_weights,
    "mismatch_engine": of_another_engine,
    "mismatch_suite": of_another_suite,
    "mismatch_policy": under_another_policy,
    "baseline_lineage": beside_another_model,
    "revoked": revoked,
}


@pytest.mark.parametrize("code", REFUSALS)
async def test_a_promotion_is_refused_with_409_and_its_code(it: Stage, code: str) -> None:
    status, body = await it.wish("large", await REFUSALS[code](it))
    assert (status, body["error"]["code"]) == (409, code)
    assert body["error"]["message"]
    last = (await it.get("/admin/audit?newest=1&limit=1"))["events"][0]
    assert (last["verb"], last["detail"]["code"]) == ("promote.refused", code)
    assert (await it.get("/admin/status"))["models"]["annie"]["live"] == "small"


WRONG: dict[str, tuple[str, Any, int, str]] = {
    "no such model": ("promote", {"model": "nobody", "engine": "large"}, 404, "model_not_found"),
    "no such engine": ("promote", {"model": "annie", "engine": "nobody", "report": "r"}, 404, "engine_not_found"),
    "no report": ("promote", {"model": "annie", "engine": "large"}, 409, "report_missing"),
    "already live": ("promote", {"model": "annie", "engine": "small", "report": "r"}, 409, "already_live"),
    "no engine": ("promote", {"model": "annie"}, 400, "missing_field"),
    "a field too many": ("promote", {"model": "annie", "engine": "large", "force": True}, 400, "invalid_value"),
    "no JSON": ("promote", b"{", 400, "invalid_json"),
    "nothing to go back to": ("rollback", {"model": "annie"}, 409, "no_previous"),
    "a report that is none": ("reports", b"{}", 400, "report_malformed"),
    "revoked without a reason": ("revoke", {"thing": "report", "id": sha("r"), "reason": ""}, 400, "invalid_value"),
    "no such operation": ("operations/op-none/cancel", {}, 404, "operation_not_found"),
}  # fmt: skip


@pytest.mark.parametrize("path, body, status, code", WRONG.values(), ids=WRONG.keys())
async def test_what_cannot_be_done_has_a_status_and_a_code(
    it: Stage, path: str, body: Any, status: int, code: str
) -> None:
    answer = await it.post(f"/admin/{path}", body)
    assert (answer[0], answer[1]["error"]["code"]) == (status, code)


@pytest.mark.parametrize("path", ["operations/op-none", "operations/op-none/events", "reports/sha256:0"])
async def test_what_is_not_there_is_404(it: Stage, path: str) -> None:
    assert (await it.house.operate(f"/admin/{path}")).status == 404


async def test_every_verb_needs_the_token(it: Stage) -> None:
    for path in ("promote", "rollback", "reports", "operations/x/cancel"):
        async with it.house.client.post(f"{it.house.admin}/admin/{path}", json={}) as response:
            assert response.status == 401


# ------------------------------------------------------------------------------------ reports


async def test_a_report_is_given_back_as_it_was_uploaded(it: Stage) -> None:
    data = signed(it.config, statement(it.config, "large", "small"))
    status, body = await it.post("/admin/reports", data)
    again, same = await it.post("/admin/reports", data)
    assert (status, again) == (201, 200) and same == body
    assert (body["verdict"], body["trusted"]) == ("pass", True)
    assert (await it.house.operate(f"/admin/reports/{body['digest']}")).raw == data
    listed = (await it.get("/admin/reports"))["reports"]
    assert body["digest"] in [row["digest"] for row in listed]


# ------------------------------------------------------------------------------------ dry run


async def test_a_dry_run_tells_the_plan_and_changes_nothing(it: Stage) -> None:
    report = await it.report("large", "small")
    before = await it.get("/admin/audit")
    status, plan = await it.wish("large", report, "?dry_run=1")
    assert status == 200 and plan["dry_run"]
    assert (plan["starts"], plan["stops"], plan["strategy"]) == (["large"], ["small"], "blue_green")
    memory = plan["memory"]
    assert memory["after_bytes"] == memory["available_bytes"] - memory["needed_bytes"]
    assert await it.get("/admin/audit") == before
    assert (await it.get("/admin/operations"))["operations"] == []


async def test_a_dry_run_is_refused_as_the_promotion_would_be(it: Stage) -> None:
    status, body = await it.wish("large", await of_other_weights(it), "?dry_run=1")
    assert (status, body["error"]["code"]) == (409, "mismatch_artefact")


# ----------------------------------------------------------------------------------- overrides

WAIVER = {
    "model": "annie",
    "engine": "large",
    "waives": ["verdict_not_pass"],
    "reason": "we must see it live",
}


async def test_an_override_is_shown_until_it_is_withdrawn(it: Stage) -> None:
    status, granted = await it.post("/admin/overrides", WAIVER)
    assert (status, granted["engine"], granted["waives"]) == (201, "large", ["verdict_not_pass"])
    assert (await it.get("/admin/status"))["models"]["annie"]["override"] == granted
    assert (await it.house.metrics())("manners_override_active", model="annie") == 1
    url = f"{it.house.admin}/admin/overrides/{granted['id']}"
    async with it.house.client.delete(url, headers=OPERATOR) as response:
        assert response.status == 200
    async with it.house.client.delete(url, headers=OPERATOR) as response:
        assert response.status == 404
    assert (await it.get("/admin/overrides")) == {"overrides": []}
    assert (await it.get("/admin/status"))["models"]["annie"]["override"] is None
    assert (await it.house.metrics())("manners_override_active", model="annie") == 0
    verbs = [event["verb"] for event in (await it.get("/admin/audit?newest=1&limit=2"))["events"]]
    assert verbs == ["override.granted", "override.withdrawn"]


@pytest.mark.parametrize(
    "change, status",
    [({"waives": ["revoked"]}, 400), ({"reason": "so"}, 400), ({"hours": 25.0}, 400), ({"engine": "x"}, 404)],
)
async def test_an_override_that_cannot_be_granted_is_refused(it: Stage, change: Any, status: int) -> None:
    assert (await it.post("/admin/overrides", {**WAIVER, **change}))[0] == status


@pytest.mark.usefixtures("quick")
async def test_what_an_override_waives_stands_in_the_audit(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        await it.post("/admin/overrides", {**WAIVER, "waives": ["report_missing"]})
        status, begun = await it.wish("large", None)
        assert status == 202, begun
        events = await it.events(begun["id"])
        assert events[-1][2]["phase"] == "succeeded"
        checked = next(d for _, _, d in events if d.get("effect") and "/check/" in d["effect"])
        assert "report_missing" in checked["evidence"]["waived"]


# ---------------------------------------------------------------- operations, each on a gateway of its own


@pytest.mark.usefixtures("quick")
async def test_a_promotion_from_its_wish_to_its_end(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        report = await it.report("large", "small")
        status, begun = await it.wish("large", report, **{"idempotency-key": "k1"})
        assert status == 202 and begun["phase"] in ("queued", "preflight") and not begun["done"]
        events = await it.events(begun["id"])
        assert events_of(events) == [
            "queued", "preflight", "admitted", "starting", "healthy", "warming", "canary", "switching",
            "draining", "baking", "retiring", "succeeded",
        ]  # fmt: skip
        middle = events[5][0]
        assert await it.events(begun["id"], after=middle) == events[6:]
        shown = await it.get(f"/admin/operations/{begun['id']}")
        assert shown == events[-1][2] and shown["result"] == {"live": "large"} and "error" not in shown
        same_status, same = await it.wish("large", report, **{"idempotency-key": "k1"})
        assert (same_status, same["id"]) == (202, begun["id"])
        other_status, other = await it.wish("stranger", report, **{"idempotency-key": "k1"})
        assert (other_status, other["error"]["code"]) == (422, "idempotency_key_reused")
        now = (await it.get("/admin/status"))["models"]["annie"]
        assert (now["live"], now["previous"], now["operation"]) == ("large", "small", None)
        assert (await it.house.ask()).headers["x-manners-engine"] == "large"
        metrics = await it.house.metrics()
        assert metrics("manners_promotions_total", result="succeeded") == 1
        assert metrics("manners_promotion_phase_seconds_count", phase="starting") == 1
        assert metrics("manners_active_engine", model="annie", engine="large") == 1
        assert metrics("manners_active_engine", model="annie", engine="small") == 0
        audit = await it.get("/admin/audit")
        assert audit["chain"] == {"ok": True} and audit["head"]["seq"] == len(audit["events"])


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
        assert it.house.gateway.fleet.running() == {"small"}
        late, no = await it.post(f"/admin/operations/{begun['id']}/cancel")
        assert (late, no["error"]["code"]) == (409, "not_cancellable")
        assert (await it.house.ask()).headers["x-manners-engine"] == "small"


@pytest.mark.usefixtures("quick")
async def test_a_rollback_in_the_bake_turns_the_promotion_back(tmp_path: Path) -> None:
    config = settings(tmp_path)
    slow = config.promotion.model_copy(update={"bake_seconds": 60.0})
    async with stage(tmp_path, config.model_copy(update={"promotion": slow})) as it:
        _, begun = await it.wish("large", await it.report("large", "small"))
        await it.events(begun["id"], until="baking")
        status, same = await it.post("/admin/rollback", {"model": "annie"})
        assert (status, same["id"]) == (202, begun["id"])
        ended = await it.ended(begun["id"])
        assert (ended["phase"], ended["error"]["code"]) == ("rolled_back", "turned_back")
        assert (await it.house.ask()).headers["x-manners-engine"] == "small"
        assert it.house.gateway.fleet.running() == {"small"}


async def test_an_engine_that_does_not_come_up_leaves_everything_as_it_was(tmp_path: Path) -> None:
    config = settings(tmp_path)
    spec = replace(config.engines["large"], args=("--ctx-size", "4096", "--chat-template-file", "/none"))
    broken = config.model_copy(update={"engines": {**config.engines, "large": spec}})
    async with stage(tmp_path, broken) as it:
        ended = await it.promote("large")
        assert (ended["phase"], ended["error"]["code"]) == ("failed", "start_failed")
        assert it.house.gateway.fleet.running() == {"small"}
        assert (await it.house.ask()).status == 200
        assert (await it.house.metrics())("manners_promotions_total", result="failed") == 1


@pytest.mark.usefixtures("quick")
async def test_who_is_live_outlives_the_gateway(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        assert (await it.promote("large"))["phase"] == "succeeded"
    async with stage(tmp_path) as it:
        await eventually(lambda: it.house.gateway.fleet.is_up("large"), 20)
        assert (await it.house.ask()).headers["x-manners-engine"] == "large"
        assert it.house.gateway.fleet.running() == {"large"}
        assert (await it.rollback())["phase"] == "succeeded"
        assert (await it.house.ask()).headers["x-manners-engine"] == "small"


@pytest.mark.usefixtures("quick")
async def test_who_follows_an_operation_hears_of_it_as_it_happens(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        _, begun = await it.wish("large", await it.report("large", "small"))
        url = f"{it.house.admin}/admin/operations/{begun['id']}/events"
        async with asyncio.timeout(30), it.house.client.get(url, headers=OPERATOR) as response:
            first = json.loads((await response.content.readuntil(b"\n\n")).split(b"data: ")[1])
            assert (first["event"], first["phase"]) == ("queued", "queued")
        await it.ended(begun["id"])


@pytest.mark.usefixtures("quick")
async def test_two_models_take_turns_and_neither_takes_the_others_engine(tmp_path: Path) -> None:
    found = tables(tmp_path)
    found["models"]["bob"] = found["models"]["annie"]
    found["promotion"]["bake_seconds"] = 60.0
    async with stage(tmp_path, parse(found, tmp_path)) as it:
        report = await it.report("large", "small")
        _, first = await it.wish("large", report)
        _, second = await it.post("/admin/promote", {"model": "bob", "engine": "large", "report": report})
        await it.events(first["id"], until="baking")
        assert (await it.get(f"/admin/operations/{second['id']}"))["phase"] == "queued"
        status, cancelled = await it.post(f"/admin/operations/{second['id']}/cancel")
        assert (status, cancelled["phase"]) == (202, "cancelled")
        _, back = await it.post("/admin/rollback", {"model": "annie"})
        assert (await it.ended(back["id"]))["phase"] == "rolled_back"
    found["promotion"]["bake_seconds"] = 0.1
    async with stage(tmp_path, parse(found, tmp_path)) as it:
        assert (await it.promote("large"))["phase"] == "succeeded"
        assert it.house.gateway.fleet.running() == {"large", "small"}
        for model, engine in (("annie", "large"), ("bob", "small")):
            answer = await it.house.ask(it.house.body() | {"model": model})
            assert answer.headers["x-manners-engine"] == engine
