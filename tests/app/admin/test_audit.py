"""The audit that operators read: a long chain is checked in parts, and nothing waits for it."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.admin import routes
from app.registry.errors import ChainBroken
from app.registry.registry import Registry
from app.registry.values import AuditEntry

ENTRY = AuditEntry(at="2026-11-26T06:00:00Z", actor="ann", verb="test", subject="annie")
EVENTS, PART = 20, 3


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(routes, "MAX_EVENTS", PART)
    with Registry(tmp_path / "registry.db") as it:
        for number in range(EVENTS):
            it.note(replace(ENTRY, detail={"n": number}))
        yield it


@pytest.mark.asyncio
async def test_a_rollback_or_revocation_is_done_between_the_parts_of_a_check(registry: Registry) -> None:
    done: list[int] = []

    async def do(work: Callable[[Registry], Any]) -> Any:
        await asyncio.sleep(0)
        return work(registry)

    checking = asyncio.create_task(routes.chain_state(do))
    while not checking.done():
        await do(lambda registry: done.append(registry.head().seq))
    assert len(done) >= EVENTS // PART and checking.result() == {"ok": True}


_COPY = "INSERT INTO event SELECT {}, at, actor, verb, subject, operation, detail, prev_hash, hash FROM event WHERE seq = 2"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "sql",
    [
        *(f"UPDATE event SET actor = 'eve' WHERE seq = {seq}" for seq in range(1, EVENTS + 1)),
        *(f"DELETE FROM event WHERE seq = {seq}" for seq in range(1, EVENTS)),
        *(_COPY.format(seq) for seq in (-9, -1, 0, EVENTS + 1, EVENTS + 9)),
    ],
)
async def test_in_parts_as_in_one_go(registry: Registry, sql: str) -> None:
    """Wherever the chain was changed."""
    connection = registry._connection
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(sql)
    with pytest.raises(ChainBroken) as whole:
        registry.verify_chain()

    async def do(work: Callable[[Registry], Any]) -> Any:
        return work(registry)

    state = await routes.chain_state(do)
    assert state == {"ok": False, "seq": whole.value.seq, "why": whole.value.why}
