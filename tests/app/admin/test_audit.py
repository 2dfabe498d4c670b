"""The audit that operators read: a long chain is checked in parts, and nothing waits for it."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.admin import audit
from app.admin.audit import audit_page
from app.registry.errors import ChainBroken
from app.registry.registry import Registry
from app.registry.values import AuditEntry

pytestmark = pytest.mark.asyncio

ENTRY = AuditEntry(at="2026-11-26T06:00:00Z", actor="ann", verb="test", subject="annie", detail={"n": 1})
EVENTS, PART = 20, 3


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry(tmp_path / "registry.db") as it:
        for number in range(EVENTS):
            it.note(replace(ENTRY, detail={"n": number}))
        yield it


class Runner:
    """Does what it is asked in turn."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def __call__(self, work: Callable[[Registry], Any]) -> Any:
        await asyncio.sleep(0)
        return work(self.registry)


@pytest.fixture
def runner(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr(audit, "PART", PART)
    return Runner(registry)


async def test_the_registry_has_time_for_others_between_the_parts_of_a_check(runner: Runner) -> None:
    """A promotion's step would else wait for the whole of it, and one with every operator who only looks."""
    checking = asyncio.create_task(audit_page(runner, 0, 1, False))
    done: list[int] = []

    async def another() -> None:
        while not checking.done():
            await runner(lambda registry: done.append(registry.head().seq))

    await another()
    assert len(done) >= EVENTS // PART
    assert (await checking)["chain"] == {"ok": True}


_COPY = "INSERT INTO event SELECT {}, at, actor, verb, subject, operation, detail, prev_hash, hash FROM event WHERE seq = 2"


@pytest.mark.parametrize(
    "sql",
    [
        *(f"UPDATE event SET actor = 'eve' WHERE seq = {seq}" for seq in range(1, EVENTS + 1)),
        *(f"DELETE FROM event WHERE seq = {seq}" for seq in range(1, EVENTS)),
        *(_COPY.format(seq) for seq in (-9, -1, 0, EVENTS + 1, EVENTS + 9)),
    ],
)
async def test_in_parts_as_in_one_go(runner: Runner, sql: str) -> None:
    """Wherever the chain was changed."""
    connection = runner.registry._connection
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(sql)
    with pytest.raises(ChainBroken) as whole:
        runner.registry.verify_chain()
    chain = (await audit_page(runner, 0, 1, False))["chain"]
    assert chain == {"ok": False, "seq": whole.value.seq, "why": whole.value.why}
