"""The registry, to read; also while a gateway writes to it."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from app.registry import chain
from app.registry.errors import UnknownRow
from app.registry.store import open_to_read, translated
from app.registry.values import (
    Alias,
    AliasName,
    AuditEvent,
    Head,
    KeyLimits,
    KnownArtefact,
    KnownEngine,
    KnownKey,
    KnownOperator,
    KnownReport,
    Meter,
    OperationRow,
    Revocation,
    Thing,
)

Row = TypeVar("Row")

TABLES: Final[Mapping[type, str]] = {
    KnownArtefact: "artefact",
    KnownEngine: "engine",
    KnownReport: "report",
    Revocation: "revocation",
    Alias: "alias",
    OperationRow: "operation",
    AuditEvent: "event",
    KnownKey: "api_key",
    KnownOperator: "operator",
}
"""The table of each kind of value; its columns are the value's fields."""
_LIMITS: Final = tuple(field.name for field in fields(KeyLimits))
_DECODED: Final[Mapping[type, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    KnownArtefact: lambda row: {**row, "parents": json.loads(row["parents"])},
    OperationRow: lambda row: {**row, "done": bool(row["done"])},
    KnownKey: lambda row: {"limits": KeyLimits(**{name: row.pop(name) for name in _LIMITS}), **row},
}
"""Where columns are not the fields themselves."""
_BEFORE_ALL: Final = -(2**63)
"""An event with the number 0, or one below, breaks the chain: so it is read, too."""


class RegistryReader:
    """Read access, the oldest row first. What is not recorded is None; what cannot be read raises StorageFailed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def at(cls, path: Path) -> "RegistryReader":
        """The registry at `path`, without the writer's lock. Raises NotARegistry."""
        return RegistryReader(open_to_read(path))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def artefact(self, root: str) -> KnownArtefact | None:
        return self._one(KnownArtefact, "WHERE root = ?", root)

    def artefacts(self) -> tuple[KnownArtefact, ...]:
        return self._all(KnownArtefact)

    def engine(self, digest: str) -> KnownEngine | None:
        return self._one(KnownEngine, "WHERE digest = ?", digest)

    def engines(self) -> tuple[KnownEngine, ...]:
        return self._all(KnownEngine)

    def report(self, digest: str) -> KnownReport | None:
        return self._one(KnownReport, "WHERE digest = ?", digest)

    def reports(self) -> tuple[KnownReport, ...]:
        return self._all(KnownReport)

    def revocation(self, thing: Thing, id: str) -> Revocation | None:
        return self._one(Revocation, "WHERE thing = ? AND id = ?", thing, id)

    def revocations(self) -> tuple[Revocation, ...]:
        return self._all(Revocation)

    def alias(self, model: str, name: AliasName) -> Alias | None:
        """An alias of a model; one that was cleared has a generation and no engine."""
        return self._one(Alias, "WHERE model = ? AND name = ?", model, name)

    def aliases(self) -> tuple[Alias, ...]:
        """Every alias, by model and name."""
        return self._all(Alias, "ORDER BY model, name")

    def operation(self, id: str) -> OperationRow:
        """Raises UnknownRow."""
        found = self._one(OperationRow, "WHERE id = ?", id)
        if found is None:
            raise UnknownRow(f"there is no operation {id:.64}")
        return found

    def operation_of_key(self, key: str) -> OperationRow | None:
        """The operation that an idempotency key began."""
        return self._one(OperationRow, "WHERE key = ?", key)

    def unfinished(self, model: str) -> OperationRow | None:
        return self._one(OperationRow, "WHERE model = ? AND done = 0", model)

    def operations(self, *, unfinished_only: bool = False) -> tuple[OperationRow, ...]:
        return self._all(OperationRow, f"{'WHERE done = 0' if unfinished_only else ''} ORDER BY rowid")

    def latest_operations(self, limit: int) -> tuple[OperationRow, ...]:
        """At most so many operations, the newest first."""
        return self._all(OperationRow, "ORDER BY rowid DESC LIMIT ?", limit)

    def events(
        self, *, after: int = 0, operation: str | None = None, limit: int = 1000
    ) -> tuple[AuditEvent, ...]:
        """At most `limit` events with a higher `seq` than `after`, in order; of one operation, if given."""
        of, whose = ("", ()) if operation is None else ("operation = ? AND", (operation,))
        return self._all(AuditEvent, f"WHERE {of} seq > ? ORDER BY seq LIMIT ?", *whose, after, limit)

    def events_of(self, *verbs: str, since: str) -> tuple[AuditEvent, ...]:
        """Every event of these verbs from a time on, in order."""
        marks = ", ".join("?" * len(verbs))
        return self._all(AuditEvent, f"WHERE at >= ? AND verb IN ({marks}) ORDER BY seq", since, *verbs)

    def api_keys(self) -> tuple[KnownKey, ...]:
        """Callers' keys, the revoked ones too, by name."""
        return self._all(KnownKey, "ORDER BY name")

    def usages(self) -> dict[str, Meter]:
        """What the keys have used, by name, as it was written last."""
        rows = self._rows("SELECT * FROM key_usage ORDER BY name")
        return {row.pop("name"): Meter(**row) for row in rows}

    def operators(self) -> tuple[KnownOperator, ...]:
        """Operators, the revoked ones too, by name."""
        return self._all(KnownOperator, "ORDER BY name")

    def head(self) -> Head:
        """The last event, or the genesis before the first."""
        rows = self._rows("SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1")
        return Head(**rows[0]) if rows else chain.GENESIS

    def verify_chain(self, before: Head = chain.GENESIS, limit: int = -1) -> Head:
        """Hash the next `limit` events behind `before` again, or all; the head behind them, `before` at the chain's end.

        A long chain takes seconds: it can be verified in parts.

        Raises ChainBroken: names the first event that is missing, altered or out of place.
        """
        after = before.seq if before != chain.GENESIS else _BEFORE_ALL
        return chain.verify(self.events(after=after, limit=limit), before)

    def _one(self, kind: type[Row], rest: str, *values: object) -> Row | None:
        return next(iter(self._all(kind, rest, *values)), None)

    def _all(self, kind: type[Row], rest: str = "ORDER BY rowid", *values: object) -> tuple[Row, ...]:
        rows, decoded = self._rows(f"SELECT * FROM {TABLES[kind]} {rest}", *values), _DECODED.get(kind, dict)
        return tuple(kind(**decoded(row)) for row in rows)

    def _rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        with translated():
            return [dict(row) for row in self._connection.execute(sql, values)]
