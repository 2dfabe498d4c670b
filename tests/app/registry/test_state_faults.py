"""A state folder that is deleted, locked or full while the gateway runs: operators are told which, callers notice nothing."""

import asyncio
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.promotion import repository, service, worker
from app.promotion.worker import write_after
from app.registry import store
from app.registry.errors import StorageFailed
from tests.app import house as houses
from tests.app.house import GatewayFixture
from tests.app.promotion.stage import OPERATOR
from tests.app.promotion.test_eligibility import REPORT
from tests.script import reply
from tests.scripted_engine import ScriptedEngine

REVOKE = {"thing": "key", "id": "sha256:" + "0" * 64, "reason": "nobody trusts it"}

Fault = Callable[[GatewayFixture, Path], Any]


@contextmanager
def deleted(house: GatewayFixture, state: Path) -> Iterator[None]:
    aside = state.with_name("aside")
    state.rename(aside)
    yield
    shutil.rmtree(state, ignore_errors=True)
    aside.rename(state)


@contextmanager
def replaced(house: GatewayFixture, state: Path) -> Iterator[None]:
    with deleted(house, state):
        state.mkdir()
        (state / "registry.db").write_bytes(b"")
        yield


@contextmanager
def locked(house: GatewayFixture, state: Path) -> Iterator[None]:
    with closing(sqlite3.connect(state / "registry.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def full(house: GatewayFixture, state: Path) -> Iterator[None]:
    registry = house.gateway.promotions.registry._registry
    assert registry is not None
    pages = registry._connection.execute("PRAGMA page_count").fetchone()[0]
    registry._connection.execute(f"PRAGMA max_page_count = {pages}")
    yield
    registry._connection.execute("PRAGMA max_page_count = 1000000")


@contextmanager
def read_only(house: GatewayFixture, state: Path) -> Iterator[None]:
    """As SQLite meets a file system that was mounted anew, read-only."""
    registry = house.gateway.promotions.registry._registry
    assert registry is not None
    registry._connection.execute("PRAGMA query_only = ON")
    yield
    registry._connection.execute("PRAGMA query_only = OFF")


WRITES = [
    (deleted, 503, "state_missing"),
    (replaced, 503, "state_missing"),
    (locked, 503, "state_locked"),
    (full, 507, "state_full"),
    (read_only, 503, "state_unavailable"),
]


async def revoke(house: GatewayFixture, number: int) -> tuple[int, Any]:
    body = {**REVOKE, "id": f"sha256:{number:064x}", "reason": "because " + "x" * 400}
    async with house.client.post(f"{house.admin}/admin/revoke", json=body, headers=OPERATOR) as response:
        return response.status, await response.json()


async def revoke_until_refused(house: GatewayFixture) -> tuple[int, str]:
    """What the first refusal says; a database that is full has room in its last pages."""
    for number in range(100):
        status, body = await revoke(house, number)
        if status != 201:
            return status, body["error"]["code"]
    raise AssertionError("nothing was refused")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here waits for a lock that will not be given up."""
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.05)


@pytest.mark.parametrize(("fault", "status", "code"), WRITES, ids=[fault.__name__ for fault, *_ in WRITES])
async def test_operators_are_told_what_is_wrong_and_callers_are_served(
    tmp_path: Path, fault: Fault, status: int, code: str
) -> None:
    state = tmp_path / "state"
    async with ScriptedEngine() as engine, houses.run(houses.config(engine, state), engine) as house:
        assert (await revoke(house, 1000))[0] == 201
        with fault(house, state):
            assert await revoke_until_refused(house) == (status, code)
            engine.play(*reply("It leaves at ten."))
            assert (await house.ask()).text == "It leaves at ten."
            found = await house.metrics()
            assert found("manners_state_failures_total", code=code) >= 1
            assert found("manners_state_available") == 0  # though what the scrape itself reads can be read
        assert (await revoke(house, 1001))[0] == 201
        assert (await house.metrics())("manners_state_available") == 1


async def test_what_cannot_be_read_has_its_code_and_no_path_of_the_host(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with ScriptedEngine() as engine, houses.run(houses.config(engine, state), engine) as house:
        with deleted(house, state):
            for path in ("audit", "operations", "reports", "status"):
                answer = await house.operate(f"/admin/{path}")
                assert (answer.status, answer.error["code"]) == (503, "state_missing")
                assert str(tmp_path) not in answer.raw.decode()


async def test_a_report_that_finds_no_room_is_told_so_and_leaves_nothing(tmp_path: Path) -> None:
    async with houses.house(tmp_path) as house:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
            async with house.client.post(
                f"{house.admin}/admin/reports", data=REPORT, headers=OPERATOR
            ) as answer:
                status, body = answer.status, await answer.json()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (status, body["error"]["code"]) == (507, "state_full")
        assert list((tmp_path / "reports").iterdir()) == []


async def test_a_registry_that_does_not_answer_holds_up_neither_metrics_nor_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "STATE_SECONDS", 0.05)
    monkeypatch.setattr(service, "STANDINGS_SECONDS", 0.01)
    async with houses.house(tmp_path) as house:
        executor = house.gateway.promotions.registry
        gate = asyncio.Event()
        kept = executor.run

        async def stuck(work: Any) -> Any:
            await gate.wait()
            return await kept(work)

        monkeypatch.setattr(executor, "run", stuck)
        assert "manners_in_flight" in (await house.get(f"{house.admin}/metrics")).raw.decode()
        answer = await house.operate("/admin/audit")
        assert (answer.status, answer.error["code"]) == (503, "state_unavailable")
        gate.set()


async def test_the_worker_waits_for_the_disk_counts_each_try_and_tells_of_changes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "DISK_SECONDS", 0.0)
    faults = [
        StorageFailed("held", "state_locked"),
        StorageFailed("held", "state_locked"),
        StorageFailed("full", "state_full"),
        StorageFailed("full", "state_full"),
    ]
    async with houses.house(tmp_path) as house:
        gateway, written = house.gateway, []

        def work(number: int, registry: Any) -> None:
            if faults:
                raise faults.pop(0)
            written.append(number)

        steps: list[asyncio.Task[None] | None] = [None]
        for number in range(3):
            writing = write_after(steps[-1], gateway.promotions.registry, partial(work, number))
            steps.append(asyncio.create_task(writing))
        await asyncio.gather(*filter(None, steps))
        assert written == [0, 1, 2]
        found = await house.metrics()
        assert found("manners_state_failures_total", code="state_locked") == 2
        assert found("manners_state_failures_total", code="state_full") == 2
        told = [line.get("code") for line in house.log.lines if line["event"] == "registry_failed"]
        assert told == ["state_locked", "state_full"]
        assert [line["event"] for line in house.log.lines][-1] == "registry_works_again"
