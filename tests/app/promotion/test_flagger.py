"""Flagger's webhooks: what it posts (`CanaryWebhookPayload`), and the 200 to 202 that it takes for yes (`callWebhook`)."""

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.promotion.state_machine import Action, BreachError, FailureReason
from app.promotion.steps import HANDLERS
from tests.app.house import TOKEN
from tests.app.promotion.stage import Stage, settings, stage
from tests.app.promotion.stage import quick as quick

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.usefixtures("quick")]  # a promotion: 2 s
CANARY = yaml.safe_load((Path(__file__).parents[3] / "deploy/flagger/canary.yaml").read_text())
HOOKS = {hook["type"]: hook for hook in CANARY["spec"]["analysis"]["webhooks"]}
SAID = {"name": "vllm", "namespace": "voice", "phase": "Progressing", "checksum": "85d557f47b"}
GO, NO = (200, None), (409, "not_rolled_back")
Ask = Callable[..., Awaitable[tuple[int, Any]]]


async def flagger(it: Stage) -> Ask:
    """Posts a shipped webhook as an operator who may watch; returns the status, and the code of a no."""
    _, made = await it.post("/admin/operators", {"name": "flagger", "role": "watch"})

    async def ask(
        hook: str, engine: str = "large", token: str = made["token"], **more: str
    ) -> tuple[int, Any]:
        host, shipped = it.house.admin.removeprefix("http://"), HOOKS[hook]
        url = shipped["url"].replace("TOKEN", token).replace("house-manners-admin:8081", host)
        body = {**SAID, "metadata": {**shipped["metadata"], "engine": engine, **more}}
        async with it.house.client.post(url, json=body) as response:
            said = await response.json()
            return response.status, None if response.status in (200, 201, 202) else said["error"]["code"]

    return ask


async def both(ask: Ask, engine: str = "large") -> tuple[int, Any]:
    """Both confirmations, which answer alike."""
    (told,) = {await ask(hook, engine) for hook in HOOKS if hook.startswith("confirm-")}
    return told


async def test_a_roll_out_is_confirmed_by_the_latest_report_alone(tmp_path: Path) -> None:
    """In a cluster the weights lie with the engine, and the gateway has the manifest alone."""
    config, bare = settings(tmp_path), tmp_path / "bare"
    bare.mkdir()
    shutil.copy((config.engines["large"].artefact or tmp_path) / "artefact.json", bare)
    engines = {**config.engines, "large": replace(config.engines["large"], artefact=bare)}
    async with stage(tmp_path, config.model_copy(update={"engines": engines})) as it:
        ask = await flagger(it)
        assert await both(ask) == (409, "report_missing")
        await it.report("large", "small")
        assert await both(ask) == GO
        await it.report("large", "small", created="2020-01-01T00:00:00Z")
        assert await both(ask) == (409, "report_stale")
        assert await both(ask, "small") == (409, "report_missing"), "that it is live is no reason"
        assert (await it.get("/admin/operations"))["operations"] == []
        for hook in HOOKS:
            assert (await ask(hook, engine="nobody"))[0] == 404
            assert await ask(hook, token="wrong") == (401, "invalid_api_key")
        assert (await it.post("/admin/flagger/rollback", SAID))[0] == 400
        url = it.house.admin.replace("//", f"//flagger:{TOKEN}@")
        assert (await it.house.client.get(f"{url}/admin/status")).status == 401, (
            "a browser sends it by itself"
        )


async def test_a_bake_that_breaks_rolls_back_and_so_does_an_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breach(site: Any, plan: Any, effect: Any) -> Any:
        raise BreachError(FailureReason("bake_leak", "it leaks"))

    async with stage(tmp_path) as it:
        ask = await flagger(it)
        assert await ask("rollback") == NO
        _, begun = await it.wish("large", await it.report("large", "small"))
        assert await ask("rollback") == NO
        assert await both(ask) == (409, "busy"), "the bake is to judge first"
        assert (await it.ended(begun["id"]))["phase"] == "succeeded"
        assert await both(ask) == GO and await ask("rollback") == NO
        await it.rollback()
        assert await ask("rollback") == GO and await ask("rollback", engine="small") == NO
        monkeypatch.setitem(HANDLERS, Action.WATCH, breach)
        assert (await it.promote("large"))["phase"] == "rolled_back"
        assert await ask("rollback") == GO and await ask("rollback", engine="small") == NO
