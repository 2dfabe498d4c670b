"""The registry, to write: artefacts, engines, reports, aliases, operations and audit events.

Every change is one transaction that includes its audit event, and is durable when the call returns. Values
go in and come out. It makes no decisions: whether an engine may go live is decided in `app.promotion`.
Calls come one at a time, and block for as long as the disk takes.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple
from pathlib import Path

from app.registry import chain
from app.registry.errors import (
    Conflict,
    GenerationMoved,
    KeyReused,
    OperationUnderWay,
    StorageFailed,
    StorageMissing,
    UnknownRow,
)
from app.registry.reader import RegistryReader
from app.registry.store import PUT_BACK, identity_of, open_to_write, take_lock, transaction
from app.registry.values import (
    AliasMove,
    AuditEntry,
    AuditEvent,
    KeyLimits,
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


class Registry(RegistryReader):
    """The registry, readable and writable; holds the writer's lock until it is closed."""

    def __init__(self, path: Path) -> None:
        """Open it; create or migrate it where needed.

        Raises RegistryLocked, NotARegistry, RegistryTooNew, StorageFailed.
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
        """Raises StorageMissing if its file was deleted or replaced since it was opened.

        SQLite goes on writing to a deleted file, and the data are lost when the process ends.
        """
        if identity_of(self._path) != self._identity:
            raise StorageMissing(f"another file lies where the registry was; {PUT_BACK}")

    def _unlock(self) -> None:
        # Only once: the number of a closed descriptor may belong to another file.
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---------------------------------------------------------------------------------- records

    def add_artefact(self, artefact: KnownArtefact, entry: AuditEntry) -> None:
        """Add an artefact; no effect if it is recorded. Raises Conflict if it is recorded differently."""
        row = {**asdict(artefact), "parents": canonical(artefact.parents).decode()}
        self._add("artefact", "root", row, artefact, self.artefact(artefact.root), entry)

    def add_engine(self, engine: KnownEngine, entry: AuditEntry) -> None:
        """Add an engine; no effect if it is recorded. Raises Conflict if it is recorded differently, or its artefact is not."""
        self._add("engine", "digest", asdict(engine), engine, self.engine(engine.digest), entry)

    def add_report(self, report: KnownReport, entry: AuditEntry) -> None:
        """Add a report; no effect if it is recorded. Raises Conflict if it is recorded differently."""
        self._add("report", "digest", asdict(report), report, self.report(report.digest), entry)

    def _add(
        self, table: str, key: str, row: dict[str, object], value: object, known: object, entry: AuditEntry
    ) -> None:
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

    def add_key(self, key: KnownKey, entry: AuditEntry) -> None:
        """Add a caller's key; one that was revoked gives its name away. Raises Conflict: the name is taken."""
        with self._transaction():
            self._connection.execute(
                "DELETE FROM key_usage WHERE name IN (SELECT name FROM api_key WHERE name = ? AND revoked IS NOT NULL)",
                (key.name,),
            )
            row = asdict(key)
            self._replace_revoked("api_key", {**row.pop("limits"), **row})
            self._note(entry)

    def limit_key(self, name: str, limits: KeyLimits, entry: AuditEntry) -> None:
        """Replace the limits of the key of this name. Raises UnknownRow: there is none."""
        sets = "rpm = ?, tpm = ?, concurrency = ?, daily_budget = ?, budget = ?"
        self._change("api_key", name, sets, astuple(limits), entry)

    def rotate_key(self, name: str, digest: str, old_until: str, entry: AuditEntry) -> None:
        """Give a key another secret; the present one works until `old_until`. Raises UnknownRow: there is none."""
        sets = "old_digest = digest, old_until = ?, digest = ?"
        self._change("api_key", name, sets, (old_until, digest), entry)

    def revoke_key(self, name: str, entry: AuditEntry) -> None:
        """Revoke a caller's key. Raises UnknownRow: there is none of this name."""
        self._change("api_key", name, "revoked = ?", (entry.at,), entry)

    def add_operator(self, operator: KnownOperator, entry: AuditEntry) -> None:
        """Add an operator; one that was revoked gives the name away. Raises Conflict: the name is taken."""
        with self._transaction():
            self._replace_revoked("operator", asdict(operator))
            self._note(entry)

    def revoke_operator(self, name: str, entry: AuditEntry) -> None:
        """Revoke an operator. Raises UnknownRow: there is none of this name."""
        self._change("operator", name, "revoked = ?", (entry.at,), entry)

    def write_usage(self, meters: Mapping[str, Meter]) -> None:
        """Replace what these keys have used, in one transaction. Keys that are not known are left out."""
        with self._transaction():
            for name, meter in meters.items():
                self._connection.execute(
                    "INSERT OR REPLACE INTO key_usage (name, requests, tokens, at, day, today, total)"
                    " SELECT ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM api_key WHERE name = ?)",
                    (name, *meter, name),
                )

    def _replace_revoked(self, table: str, row: dict[str, object]) -> None:
        self._connection.execute(
            f"DELETE FROM {table} WHERE name = ? AND revoked IS NOT NULL", (row["name"],)
        )
        self._insert(table, row)

    def _change(
        self, table: str, name: str, sets: str, values: tuple[object, ...], entry: AuditEntry
    ) -> None:
        """Change the row of this name that was not revoked. Raises UnknownRow."""
        with self._transaction():
            changed = self._connection.execute(
                f"UPDATE {table} SET {sets} WHERE name = ? AND revoked IS NULL", (*values, name)
            ).rowcount
            if not changed:
                raise UnknownRow(f"there is no {table.replace('_', ' ')} {name:.64}")
            self._note(entry)

    # ----------------------------------------------------------------------------------- changes

    def move(self, moves: Iterable[AliasMove], entry: AuditEntry) -> None:
        """Move aliases, all or none. Raises GenerationMoved, Conflict (no such engine)."""
        with self._transaction():
            self._move(moves, entry)
            self._note(entry)

    def begin(self, operation: OperationRow, entry: AuditEntry) -> OperationRow:
        """Add an operation; or return the one that the same key and request began before.

        Raises KeyReused: the key came with another request; OperationUnderWay: the model has an unfinished one.
        """
        with self._transaction():
            if operation.key is not None and (known := self.operation_of_key(operation.key)):
                if known.request != operation.request:
                    raise KeyReused(
                        f"the idempotency key {operation.key:.64} belongs to another request; take a new one"
                    )
                return known
            if other := self.unfinished(operation.model):
                raise OperationUnderWay(operation.model, other.id)
            self._insert("operation", {**asdict(operation), "done": int(operation.done)})
            self._note(entry)
        return operation

    def advance(self, operation: OperationRow, moves: Iterable[AliasMove], entry: AuditEntry) -> None:
        """Write an operation's next state and the aliases that move with it, in one transaction.

        Raises:
            UnknownRow: there is no such operation, or it has ended.
            GenerationMoved, Conflict: of a move; nothing was changed.
        """
        with self._transaction():
            changed = self._connection.execute(
                "UPDATE operation SET phase = ?, state = ?, done = ?, result = ?, error = ? WHERE id = ? AND done = 0",
                (operation.phase, operation.state, int(operation.done), operation.result, operation.error, operation.id),
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
        """All or nothing. Raises Conflict, StorageFailed."""
        try:
            with transaction(self._connection):
                yield
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
