"""The brake works at once: whatever runs for another model, whatever the disk says, and up to the last moment."""

import asyncio
import ctypes
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from app.config.config import parse
from app.promotion import canary, repository, worker
from app.promotion.state_machine import (
    Action,
    Effect,
    EffectError,
    EffectEvidence,
    FailureReason,
    OperationPlan,
)
from app.promotion.steps import HANDLERS, Dependencies, probe
from app.telemetry.reply_window import ReplyOutcome
from gates.run.http import RequestTimeouts
from tests.app.house import eventually
from tests.app.promotion.stage import OPERATOR, Stage, stage, tables
from tests.app.promotion.stage import quick as quick

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.usefixtures("quick")]  # 2 to 5 s each

LEAK = ReplyOutcome("ok", True, frozenset({"leak"}), 0.2)


@asynccontextmanager
async def staged(state: Path, bake_seconds: float = 60.0, **more: Any) -> AsyncIterator[Stage]:
    wanted = tables(state)
    wanted["promotion"]["bake_seconds"] = bake_seconds
    wanted["models"].update(more)
    async with stage(state, parse(wanted, state)) as it:
        yield it


def live(it: Stage, model: str = "annie") -> str:
    return it.house.gateway.pool.model_route(model).first


async def shown(it: Stage, model: str = "annie") -> Any:
    return (await it.get("/admin/status"))["models"][model]


async def promoted(it: Stage, until: str | None = "baking") -> str:
    """`large` is promoted, or on its way; the operation."""
    status, begun = await it.wish("large", await it.report("large", "small"))
    assert status == 202, begun
    await it.events(begun["id"], until=until)
    return str(begun["id"])


# ---------------------------------------------------------------------------- a disk that is full


@contextmanager
def disk(folder: Path) -> Iterator[Callable[[Stage, bool], None]]:
    """What fills the disk of this folder, and makes room on it: a file system of its own where one can be mounted, else
    SQLite's own limit."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    mounted = not libc.mount(b"none", bytes(folder), b"tmpfs", 0, b"size=4m,mode=700")

    def fill(it: Stage, full: bool) -> None:
        ballast = folder / "ballast"
        if not mounted:
            registry = it.house.gateway.promotions.registry._registry
            assert registry is not None
            pages = registry._connection.execute("PRAGMA page_count").fetchone()[0]
            registry._connection.execute(f"PRAGMA max_page_count = {pages if full else 10**6}")
        elif full:
            with ballast.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))
            assert not os.statvfs(folder).f_bavail
        else:
            ballast.unlink()

    try:
        yield fill
    finally:
        if mounted:
            libc.umount2(bytes(folder), 2)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "DISK_SECONDS", 0.05)


async def thought_aloud(deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """A probe that confirms what callers' replies show."""
    raise EffectError(FailureReason("canary_failed", "a thought was said"))


@pytest.mark.parametrize("who", ["bake", "operator"])
async def test_a_full_disk_keeps_no_bad_candidate_in_service(
    tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with disk(tmp_path / "state") as fill:
        async with staged(tmp_path / "state") as it:
            operation = await promoted(it)
            fill(it, True)
            if who == "bake":
                monkeypatch.setitem(HANDLERS, Action.PROBE, thought_aloud)
                for _ in range(20):
                    it.house.gateway.promotions._deps.reply_window.add("annie", "large", LEAK)
            else:
                status, answered = await it.post("/admin/rollback", {"model": "annie"})
                assert (status, answered["id"]) == (202, operation)
            await eventually(lambda: it.house.gateway.pool.running() == {"small"})
            assert (await it.house.ask()).headers["x-manners-engine"] == "small"
            now = await shown(it)
            assert (now["live"], now["operation"]["written"]) == ("small", False)
            assert (await it.house.metrics())("manners_state_available") == 0
            assert len([line for line in it.house.log.lines if line["event"] == "registry_failed"]) == 1
            fill(it, False)
            await eventually(lambda: not it.house.gateway.promotions._worker.running)
            ended = await it.get(f"/admin/operations/{operation}")
            assert (ended["phase"], ended["written"]) == ("rolled_back", True)
            assert ((await shown(it))["live"], (await it.get("/admin/audit"))["chain"]) == (
                "small",
                {"ok": True},
            )


@contextmanager
def without_answers(it: Stage, state: Path, how: str) -> Iterator[None]:
    """The registry's file is gone, or its disk hangs."""
    goes_on = threading.Event()
    if how == "gone":
        (state / "registry.db").rename(state / "away")
    else:
        it.house.gateway.promotions.registry._thread.submit(goes_on.wait)
    try:
        yield
    finally:
        goes_on.set()
        if how == "gone":
            (state / "away").rename(state / "registry.db")


@pytest.mark.parametrize("how", ["gone", "hangs"])
async def test_a_rollback_needs_no_registry_that_answers(tmp_path: Path, how: str) -> None:
    async with staged(tmp_path, bake_seconds=0.1) as it:
        await promoted(it, until=None)
        await eventually(lambda: not it.house.gateway.promotions._worker.running)
        with without_answers(it, tmp_path, how):
            status, _ = await it.post("/admin/rollback", {"model": "annie"}, **{"idempotency-key": "k"})
            assert status == 202
            await eventually(lambda: it.house.gateway.pool.running() == {"small"})
            assert (await it.house.ask()).headers["x-manners-engine"] == "small"
        await eventually(lambda: not it.house.gateway.promotions._worker.running)
        assert (await shown(it))["live"] == "small"


@pytest.mark.parametrize("phase", ["starting", "switching", "retiring"])
async def test_a_rollback_is_taken_whatever_step_the_disk_had_no_room_for(
    tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with disk(tmp_path / "state") as fill:
        async with staged(tmp_path / "state", bake_seconds=0.5) as it:
            commit, is_full = repository.commit, threading.Event()

            def fills(registry: Any, before: Any, event: Any, after: Any, *rest: Any, **more: Any) -> None:
                if after.state.phase == phase and not is_full.is_set():
                    fill(it, True)
                    is_full.set()
                commit(registry, before, event, after, *rest, **more)

            monkeypatch.setattr(repository, "commit", fills)
            operation = await promoted(it, until="queued")
            await eventually(is_full.is_set)
            assert (await it.post("/admin/rollback", {"model": "annie"}))[0] == 202
            await eventually(lambda: it.house.gateway.pool.running() == {"small"})
            assert (await it.house.ask()).headers["x-manners-engine"] == "small"
            fill(it, False)
            assert (await it.ended(operation))["phase"] in ("cancelled", "rolled_back")
            assert (await shown(it))["live"] == "small"


# -------------------------------------------------------------------------------- models, one by one


class Held:
    """An effect that lasts until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, action: Action) -> None:
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()
        self._then = HANDLERS[action]
        monkeypatch.setitem(HANDLERS, action, self)

    async def __call__(self, deps: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
        self.began.set()
        await self.goes_on.wait()
        return await self._then(deps, plan, effect)


@pytest.mark.parametrize("second, phase", [("fp4", "baking"), ("large", "warming")])
async def test_a_rollback_waits_for_no_other_models_promotion(
    tmp_path: Path, second: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the other model is promoted to the same engine, which then runs on."""
    async with staged(tmp_path, other={"live": "spare"}) as it:
        operation = await promoted(it)
        if phase == "warming":
            Held(monkeypatch, Action.WARM)
        body = {"model": "other", "engine": second, "report": await it.report(second, "small")}
        _, begun = await it.post("/admin/promote", body)
        await it.events(begun["id"], until=phase)
        assert (await it.post("/admin/rollback", {"model": "annie"}))[0] == 202
        assert (await it.ended(operation))["phase"] == "rolled_back"
        assert live(it) == "small"
        assert it.house.gateway.pool.running() == {"small", "spare", second}
        assert (await it.get(f"/admin/operations/{begun['id']}"))["phase"] == phase


async def test_a_rollback_before_the_switch_cancels_and_then_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, bake_seconds=0.1) as it:
        await promoted(it, until=None)
        Held(monkeypatch, Action.WARM)
        _, coming = await it.wish("fp4", await it.report("fp4", "small"))
        await it.events(coming["id"], until="warming")
        ended = await it.rollback()
        assert (ended["kind"], ended["phase"], live(it)) == ("rollback", "succeeded", "small")
        assert (await it.get(f"/admin/operations/{coming['id']}"))["phase"] == "cancelled"


async def test_a_second_rollback_does_not_bring_the_bad_engine_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, bake_seconds=0.1) as it:
        await promoted(it, until=None)
        drain = Held(monkeypatch, Action.DRAIN)
        status, first = await it.post("/admin/rollback", {"model": "annie"})
        await drain.began.wait()
        again, second = await it.post("/admin/rollback", {"model": "annie"})
        assert (status, again, second["id"]) == (202, 202, first["id"])
        drain.goes_on.set()
        assert (await it.ended(first["id"]))["phase"] == "succeeded"
        assert live(it) == "small"


async def test_a_rollback_after_the_bake_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(tmp_path, bake_seconds=0.1) as it:
        held = Held(monkeypatch, Action.STOP)
        operation = await promoted(it, until="starting")
        await held.began.wait()
        status, same = await it.post("/admin/rollback", {"model": "annie"})
        assert (status, same["id"]) == (202, operation)
        held.goes_on.set()
        assert (await it.ended(operation))["phase"] == "rolled_back"
        assert live(it) == "small" and it.house.gateway.pool.running() == {"small"}


# ------------------------------------------------------------------------ a candidate that hangs


async def test_a_candidate_that_freezes_in_its_bake_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks it meanwhile, its process lives, and the bake is over before a health check is due."""
    async with staged(tmp_path, bake_seconds=1.0) as it:
        operation = await promoted(it)
        monkeypatch.setitem(HANDLERS, Action.PROBE, probe)
        monkeypatch.setattr(canary, "TIMEOUTS", RequestTimeouts(connect=5.0, idle=3.0, total=5.0))
        pid = it.house.gateway.pool.states()["large"].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        ended = await it.ended(operation)
        assert (ended["phase"], live(it)) == ("rolled_back", "small")
        assert ended["error"]["code"] in ("bake_gone", "bake_probe")


# ------------------------------------------------------------------------- eligible to the last


async def test_what_is_revoked_in_its_bake_goes_back_at_once(tmp_path: Path) -> None:
    async with staged(tmp_path, bake_seconds=3600.0) as it:
        report = await it.report("large", "small")
        _, begun = await it.wish("large", report)
        await it.events(begun["id"], until="baking")
        digest = it.house.gateway.promotions.catalogue.digest("large")
        revoked = {"thing": "engine", "id": digest, "reason": "it was signed by mistake"}
        assert (await it.post("/admin/revoke", revoked))[0] == 201
        ended = await it.ended(begun["id"])
        assert (ended["phase"], ended["error"]["code"], live(it)) == ("rolled_back", "revoked", "small")


@pytest.mark.parametrize("held, end", [(Action.WARM, "rejected"), (Action.WATCH, "succeeded")])
async def test_an_override_that_ends_under_way_lets_nothing_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Action, end: str
) -> None:
    """Of an engine that serves by then, an alert tells."""
    async with staged(tmp_path, bake_seconds=0.1) as it:
        waits = Held(monkeypatch, held)
        waiver = {"waives": ["report_missing"], "reason": "to see what happens"}
        status, granted = await it.post("/admin/overrides", {"model": "annie", "engine": "large", **waiver})
        assert status == 201
        _, begun = await it.wish("large", None)
        await waits.began.wait()
        ended = "manners_live_override_ended"
        assert (await it.house.metrics())(ended, model="annie") == 0
        url = f"{it.house.admin}/admin/overrides/{granted['id']}"
        async with it.house.client.delete(url, headers=OPERATOR) as answer:
            assert answer.status == 200
        waits.goes_on.set()
        shown = await it.ended(begun["id"])
        assert shown["phase"] == end and (shown["fault"] or {}).get("code") in (None, "report_missing")
        serves = end == "succeeded"
        assert live(it) == ("large" if serves else "small")
        assert (await it.house.metrics())(ended, model="annie") == serves
