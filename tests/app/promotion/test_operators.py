"""The operators' API over HTTP: what is asked, what is answered, and with which code it is refused."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gates.report import dsse
from gates.report.statement import format_time
from tests.app.promotion.stage import OPERATOR, Stage, signed, stage, statement
from tests.app.promotion.stage import quick as quick
from tests.gates.report.examples import OTHER_KEY, sha

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One gateway for the tests that leave it as it was: `small` live, nothing before it."""
    async with stage(tmp_path_factory.mktemp("state")) as found:
        yield found


# ----------------------------------------------------------------------------------- refusals


async def by_a_stranger(running: Stage) -> str:
    envelope = dsse.parse(signed(running.config, statement(running.config, "large", "small")))
    data = dsse.render(dsse.sign(envelope.payload, OTHER_KEY))
    status, body = await running.post("/admin/reports", data)
    assert (status, body["trusted"]) == (201, False)
    return str(body["digest"])


async def revoked(running: Stage) -> str:
    report = await running.report(
        "large", "small", created=format_time(datetime.now(UTC) - timedelta(hours=1))
    )
    status, _ = await running.post(
        "/admin/revoke", {"thing": "report", "id": report, "reason": "made by mistake"}
    )
    assert status == 201
    return report


REFUSALS: dict[str, Callable[[Stage], Awaitable[str]]] = {
    "report_signature": by_a_stranger,
    "revoked": revoked,
}
"""Every other code is a row of `test_eligibility.py`."""


@pytest.mark.slow  # engines are started and promoted: 1 s
@pytest.mark.parametrize("code", REFUSALS)
async def test_a_promotion_is_refused_with_409_and_its_code(running: Stage, code: str) -> None:
    status, body = await running.wish("large", await REFUSALS[code](running))
    assert (status, body["error"]["code"]) == (409, code)
    assert body["error"]["message"]
    last = (await running.get("/admin/audit?newest=1&limit=1"))["events"][0]
    assert (last["verb"], last["detail"]["code"]) == ("promote.refused", code)
    assert (await running.get("/admin/status"))["models"]["annie"]["live"] == "small"


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
    "an override of what cannot be waived": (
        "overrides",
        {"model": "annie", "engine": "large", "waives": ["revoked"], "reason": "we must see it live"},
        400,
        "invalid_value",
    ),
    "no such operation": ("operations/op-none/cancel", {}, 404, "operation_not_found"),
}  # fmt: skip


@pytest.mark.parametrize("path, body, status, code", WRONG.values(), ids=WRONG.keys())
async def test_what_cannot_be_done_has_a_status_and_a_code(
    running: Stage, path: str, body: Any, status: int, code: str
) -> None:
    answer = await running.post(f"/admin/{path}", body)
    assert (answer[0], answer[1]["error"]["code"]) == (status, code)


# ------------------------------------------------------------------------------------ reports


@pytest.mark.slow  # engines are started and promoted: 1 s
async def test_a_report_is_given_back_as_it_was_uploaded(running: Stage) -> None:
    data = signed(running.config, statement(running.config, "large", "small"))
    status, body = await running.post("/admin/reports", data)
    again, same = await running.post("/admin/reports", data)
    assert (status, again) == (201, 200) and same == body
    assert (body["verdict"], body["trusted"]) == ("pass", True)
    assert (await running.house.operate(f"/admin/reports/{body['digest']}")).raw == data
    listed = (await running.get("/admin/reports"))["reports"]
    assert body["digest"] in [row["digest"] for row in listed]


# ------------------------------------------------------------------------------------ dry run


async def test_a_dry_run_tells_the_plan_and_changes_nothing(running: Stage) -> None:
    report = await running.report("large", "small")
    before = await running.get("/admin/audit")
    status, plan = await running.wish("large", report, "?dry_run=1")
    assert status == 200 and plan["dry_run"]
    assert (plan["starts"], plan["stops"], plan["strategy"]) == (["large"], ["small"], "blue_green")
    assert await running.get("/admin/audit") == before
    assert (await running.get("/admin/operations"))["operations"] == []


# ----------------------------------------------------------------------------------- overrides

WAIVER = {
    "model": "annie",
    "engine": "large",
    "waives": ["verdict_not_pass"],
    "reason": "we must see it live",
}


async def test_an_override_is_shown_until_it_is_withdrawn(running: Stage) -> None:
    status, granted = await running.post("/admin/overrides", WAIVER)
    assert (status, granted["engine"], granted["waives"]) == (201, "large", ["verdict_not_pass"])
    assert (await running.get("/admin/status"))["models"]["annie"]["override"] == granted
    assert (await running.house.metrics())("manners_override_active", model="annie") == 1
    url = f"{running.house.admin}/admin/overrides/{granted['id']}"
    async with running.house.client.delete(url, headers=OPERATOR) as response:
        assert response.status == 200
    async with running.house.client.delete(url, headers=OPERATOR) as response:
        assert response.status == 404
    assert (await running.get("/admin/overrides")) == {"overrides": []}
    assert (await running.get("/admin/status"))["models"]["annie"]["override"] is None
    assert (await running.house.metrics())("manners_override_active", model="annie") == 0
    verbs = [event["verb"] for event in (await running.get("/admin/audit?newest=1&limit=2"))["events"]]
    assert verbs == ["override.granted", "override.withdrawn"]


@pytest.mark.slow  # engines are started and promoted: 2 s
@pytest.mark.usefixtures("quick")
async def test_what_an_override_waives_stands_in_the_audit(tmp_path: Path) -> None:
    async with stage(tmp_path) as running:
        await running.post("/admin/overrides", {**WAIVER, "waives": ["report_missing"]})
        status, begun = await running.wish("large", None)
        assert status == 202, begun
        events = await running.events(begun["id"])
        assert events[-1][2]["phase"] == "succeeded"
        checked = next(d for _, _, d in events if d.get("effect") and "/check/" in d["effect"])
        assert "report_missing" in checked["evidence"]["waived"]
        await _says_ungated(running, "large")


async def _says_ungated(running: Stage, engine: str) -> None:
    """The metric, the status that the console shows, and /readyz; and its replies are held back as an unknown engine's."""
    scrape = await running.house.metrics()
    assert scrape.samples["manners_live_gated", frozenset({("model", "annie"), ("engine", engine)})] == 0
    assert scrape.labels("manners_live_gated", "engine") == {engine}
    assert (await running.get("/admin/status"))["models"]["annie"]["gated"] is False
    ready = await running.house.get(running.house.url + "/readyz")
    assert ready.json == {"status": "ready", "ungated": ["annie"]}
    assert not running.house.gateway.pool.is_gated(engine)
