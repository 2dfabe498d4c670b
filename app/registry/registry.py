"""The registry, to write: artefacts, engines, reports, aliases, operations and audit events.

Every change is one transaction that includes its audit event, and is durable when the call returns. Values
go in and come out. It makes no decisions: whether an engine may go live is decided in `app.promotion`.
Calls come one at a time, and block for as long as the disk takes.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from app.registry import chain
from app.registry.errors import (
    Conflict,
    GenerationMoved,
    StorageFailed,
    UnknownRow,
)
from app.registry.reader import TABLES, RegistryReader
from app.registry.store import PUT_BACK, identity_of, open_to_write, take_lock, translated
from app.registry.values import (
    AliasMove,
    AuditEntry,
    AuditEvent,
    KnownArtefact,
    KnownEngine,
    KnownKey,
    KnownOperator,
    KnownReport,
    Meter,
    OperationRow,
    Revocation,
)
from gates.report.codec import canonical

Record = KnownArtefact | KnownEngine | KnownReport


class Registry(RegistryReader):
    """The registry, readable and writable; holds the writer's lock until it is closed."""

    def __init__(self, path: Path) -> None:
        """Open it; create or migrate it where needed.

        Raises RegistryLocked, NotARegistry, StorageFailed.
        """
        self._lock: int | None = take_lock(path)
        self.takes_writes = True  # whether the last transaction could be written; reads may go on without it
        try:
            super().__init__(open_to_write(path))
            self._path, self._identity = path, identity_of(path)
        except BaseException:
            self._unlock()
            raise

    def close(self) -> None:
        """Close the file and release the writer's lock. Idempotent."""
        super().close()
        self._unlock()

    def check_is_there(self) -> None:
        """Raises StorageFailed (state_missing) if its file was deleted or replaced since it was opened.

        SQLite goes on writing to a deleted file, and the data are lost when the process ends.
        """
        if identity_of(self._path) != self._identity:
            raise StorageFailed(f"another file lies where the registry was; {PUT_BACK}", "state_missing")

    def _unlock(self) -> None:
        # Only once: the number of a closed descriptor may belong to another file.
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---------------------------------------------------------------------------------- records

    def add(self, value: Record, entry: AuditEntry) -> None:
        """Add an artefact, an engine or a report; no effect if it is recorded.

        Raises Conflict: it is recorded differently, or refers to what is not.
        """
        table, row = TABLES[type(value)], asdict(value)
        if isinstance(value, KnownArtefact):
            key, row["parents"] = "root", canonical(value.parents).decode()
        else:
            key = "digest"
        known = self._one(type(value), f"WHERE {key} = ?", row[key])
        if known == value:
            return
        if known is not None:
            raise Conflict(f"{table} {row[key]} is known already, and as something else")
        with self._transaction():
            self._insert(table, row)
            self._note(entry)

    def revoke(self, revocation: Revocation, entry: AuditEntry) -> None:
        """Revoke something for good; a second revocation has no effect."""
        if self.revocation(revocation.thing, revocation.id) is None:
            with self._transaction():
                self._insert("revocation", asdict(revocation))
                self._note(entry)

    # ------------------------------------------------------------------------ keys and operators

    def add_named(self, value: KnownKey | KnownOperator, entry: AuditEntry) -> None:
        """Add a caller's key or an operator; one that was revoked gives its name away. Raises Conflict: the name is taken."""
        table, row = TABLES[type(value)], asdict(value)
        row = {**row.pop("limits", {}), **row}
        gone = f"SELECT name FROM {table} WHERE name = ? AND revoked IS NOT NULL"
        with self._transaction():
            for where in ("key_usage", table) if isinstance(value, KnownKey) else (table,):
                self._connection.execute(f"DELETE FROM {where} WHERE name IN ({gone})", (value.name,))
            self._insert(table, row)
            self._note(entry)

    def change(self, kind: type[KnownKey | KnownOperator], entry: AuditEntry, **columns: object) -> None:
        """Change columns of the key or operator that the entry is about. Raises UnknownRow: there is none, or it is revoked."""
        sets = ", ".join(f"{name} = ?" for name in columns)
        with self._transaction():
            changed = self._connection.execute(
                f"UPDATE {TABLES[kind]} SET {sets} WHERE name = ? AND revoked IS NULL",
                (*columns.values(), entry.subject),
            ).rowcount
            if not changed:
                raise UnknownRow(f"there is no {TABLES[kind].replace('_', ' ')} {entry.subject:.64}")
            self._note(entry)

    def write_usage(self, meters: Mapping[str, Meter]) -> None:
        """Replace what these keys have used, in one transaction. Keys that are not known are left out."""
        with self._transaction():
            for name, meter in meters.items():
                self._connection.execute(
                    "INSERT OR REPLACE INTO key_usage (name, requests, tokens, at, day, today, total)"
                    " SELECT ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM api_key WHERE name = ?)",
                    (name, *meter, name),
                )

    # ----------------------------------------------------------------------------------- changes

    def move(self, moves: Iterable[AliasMove], entry: AuditEntry) -> None:
        """Move aliases, all or none. Raises GenerationMoved, Conflict (no such engine)."""
        with self._transaction():
            self._move(moves, entry)
            self._note(entry)

    def begin(self, operation: OperationRow, entry: AuditEntry) -> None:
        """Add an operation. Raises Conflict: its key has begun another one, or the model has an unfinished one."""
        with self._transaction():
            self._insert("operation", {**asdict(operation), "done": int(operation.done)})
            self._note(entry)

    def advance(self, operation: OperationRow, moves: Iterable[AliasMove], entry: AuditEntry) -> None:
        """Write an operation's next state and the aliases that move with it, in one transaction.

        Raises:
            UnknownRow: there is no such operation, or it has ended.
            GenerationMoved, Conflict: of a move; nothing was changed.
        """
        with self._transaction():
            changed = self._connection.execute(
                "UPDATE operation SET phase = ?, state = ?, done = ? WHERE id = ? AND done = 0",
                (operation.phase, operation.state, int(operation.done), operation.id),
            ).rowcount  # fmt: skip
            if not changed:
                raise UnknownRow(f"there is no unfinished operation {operation.id}")
            self._move(moves, entry)
            self._note(entry)

    def note(self, entry: AuditEntry) -> AuditEvent:
        """Add an audit event that changes nothing else."""
        with self._transaction():
            return self._note(entry)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, and durable when it ends. Raises Conflict: a constraint was violated; StorageFailed."""
        connection = self._connection
        try:
            with translated():
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        except StorageFailed:
            self.takes_writes = False
            raise
        self.takes_writes = True

    # ------------------------------------------------------------------------ inside a transaction

    def _insert(self, table: str, row: dict[str, object]) -> None:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))

    def _note(self, entry: AuditEntry) -> AuditEvent:
        event = chain.link(self.head(), entry)
        self._insert("event", asdict(event))
        return event

    def _move(self, moves: Iterable[AliasMove], entry: AuditEntry) -> None:
        for move in moves:
            known = self.alias(move.model, move.name)
            generation = known.generation if known else 0
            if move.generation not in (None, generation):
                raise GenerationMoved(
                    f"{move.model}/{move.name} is of generation {generation}, not {move.generation}; read it again"
                )
            self._connection.execute(
                "INSERT INTO alias (model, name, engine, generation, since) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (model, name) DO UPDATE"
                " SET engine = excluded.engine, generation = excluded.generation, since = excluded.since",
                (move.model, move.name, move.engine, generation + 1, entry.at),
            )
