"""The registry, to read; also while a gateway writes to it."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Self

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

_BEFORE_ALL: Final = -(2**63)
"""An event with the number 0, or one below, breaks the chain: so it is read, too."""


class RegistryReader:
    """Read access. What is not recorded is None; what cannot be read raises StorageFailed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def at(cls, path: Path) -> "RegistryReader":
        """The registry at `path`, without the writer's lock. Raises NotARegistry, RegistryTooNew."""
        return RegistryReader(open_to_read(path))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def artefact(self, root: str) -> KnownArtefact | None:
        row = self._one("SELECT * FROM artefact WHERE root = ?", root)
        return _artefact(row) if row else None

    def artefacts(self) -> tuple[KnownArtefact, ...]:
        """Every recorded artefact, the oldest first."""
        return tuple(map(_artefact, self._all("SELECT * FROM artefact ORDER BY rowid")))

    def engine(self, digest: str) -> KnownEngine | None:
        row = self._one("SELECT * FROM engine WHERE digest = ?", digest)
        return KnownEngine(**row) if row else None

    def engines(self) -> tuple[KnownEngine, ...]:
        return tuple(KnownEngine(**row) for row in self._all("SELECT * FROM engine"))

    def engine_of(self, root: str) -> KnownEngine | None:
        """The engine that serves this artefact; of several, the latest one."""
        row = self._one("SELECT * FROM engine WHERE artefact = ? ORDER BY rowid DESC LIMIT 1", root)
        return KnownEngine(**row) if row else None

    def report(self, digest: str) -> KnownReport | None:
        row = self._one("SELECT * FROM report WHERE digest = ?", digest)
        return KnownReport(**row) if row else None

    def reports(self) -> tuple[KnownReport, ...]:
        """Every report that was uploaded, the oldest first."""
        return tuple(KnownReport(**row) for row in self._all("SELECT * FROM report ORDER BY rowid"))

    def revocation(self, thing: Thing, id: str) -> Revocation | None:
        row = self._one("SELECT * FROM revocation WHERE thing = ? AND id = ?", thing, id)
        return Revocation(**row) if row else None

    def revocations(self) -> tuple[Revocation, ...]:
        """Every revocation, the oldest first."""
        return tuple(Revocation(**row) for row in self._all("SELECT * FROM revocation ORDER BY rowid"))

    def alias(self, model: str, name: AliasName) -> Alias | None:
        """An alias of a model; one that was cleared has a generation and no engine."""
        row = self._one("SELECT * FROM alias WHERE model = ? AND name = ?", model, name)
        return Alias(**row) if row else None

    def aliases(self) -> tuple[Alias, ...]:
        """Every alias, by model and name."""
        return tuple(Alias(**row) for row in self._all("SELECT * FROM alias ORDER BY model, name"))

    def operation(self, id: str) -> OperationRow:
        """Raises UnknownRow."""
        row = self._one("SELECT * FROM operation WHERE id = ?", id)
        if row is None:
            raise UnknownRow(f"there is no operation {id:.64}")
        return _operation(row)

    def operation_of_key(self, key: str) -> OperationRow | None:
        """The operation that an idempotency key began."""
        row = self._one("SELECT * FROM operation WHERE key = ?", key)
        return _operation(row) if row else None

    def unfinished(self, model: str) -> OperationRow | None:
        row = self._one("SELECT * FROM operation WHERE model = ? AND done = 0", model)
        return _operation(row) if row else None

    def operations(self, *, unfinished_only: bool = False) -> tuple[OperationRow, ...]:
        """All operations, the oldest first."""
        where = "WHERE done = 0" if unfinished_only else ""
        return tuple(_operation(row) for row in self._all(f"SELECT * FROM operation {where} ORDER BY rowid"))

    def latest_operations(self, limit: int) -> tuple[OperationRow, ...]:
        """At most so many operations, the newest first."""
        return tuple(map(_operation, self._all("SELECT * FROM operation ORDER BY rowid DESC LIMIT ?", limit)))

    def events(
        self, *, after: int = 0, operation: str | None = None, limit: int = 1000
    ) -> tuple[AuditEvent, ...]:
        """At most `limit` events with a higher `seq` than `after`, in order; of one operation, if given."""
        of, whose = ("", ()) if operation is None else ("operation = ? AND", (operation,))
        rows = self._all(f"SELECT * FROM event WHERE {of} seq > ? ORDER BY seq LIMIT ?", *whose, after, limit)
        return tuple(AuditEvent(**row) for row in rows)

    def events_of(self, *verbs: str, since: str) -> tuple[AuditEvent, ...]:
        """Every event of these verbs from a time on, in order."""
        marks = ", ".join("?" * len(verbs))
        rows = self._all(
            f"SELECT * FROM event WHERE at >= ? AND verb IN ({marks}) ORDER BY seq", since, *verbs
        )
        return tuple(AuditEvent(**row) for row in rows)

    def api_keys(self) -> tuple[KnownKey, ...]:
        """Callers' keys, the revoked ones too, by name."""
        rows = map(dict, self._all("SELECT * FROM api_key ORDER BY name"))
        names = [field.name for field in fields(KeyLimits)]
        return tuple(
            KnownKey(limits=KeyLimits(**{name: row.pop(name) for name in names}), **row) for row in rows
        )

    def usages(self) -> dict[str, Meter]:
        """What the keys have used, by name, as it was written last."""
        rows = map(dict, self._all("SELECT * FROM key_usage ORDER BY name"))
        return {row.pop("name"): Meter(**row) for row in rows}

    def operators(self) -> tuple[KnownOperator, ...]:
        """Operators, the revoked ones too, by name."""
        return tuple(KnownOperator(**row) for row in self._all("SELECT * FROM operator ORDER BY name"))

    def head(self) -> Head:
        """The last event, or the genesis before the first."""
        row = self._one("SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1")
        return Head(**row) if row else chain.GENESIS

    def verify_chain(self, before: Head = chain.GENESIS, limit: int = -1) -> Head:
        """Hash the next `limit` events behind `before` again, or all; the head behind them, `before` at the chain's end.

        A long chain takes seconds: it can be verified in parts.

        Raises ChainBroken: names the first event that is missing, altered or out of place.
        """
        after = before.seq if before != chain.GENESIS else _BEFORE_ALL
        return chain.verify(self.events(after=after, limit=limit), before)

    def _one(self, sql: str, *values: object) -> dict[str, Any] | None:
        return next(self._all(sql, *values), None)

    def _all(self, sql: str, *values: object) -> Iterator[dict[str, Any]]:
        with translated():
            for row in self._connection.execute(sql, values):
                yield dict(row)


def _artefact(row: dict[str, Any]) -> KnownArtefact:
    return KnownArtefact(**{**row, "parents": json.loads(row["parents"])})


def _operation(row: dict[str, Any]) -> OperationRow:
    return OperationRow(**{**row, "done": bool(row["done"])})
