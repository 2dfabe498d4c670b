"""The registry: artefacts, engines, reports, revocations, aliases, operations, keys, operators and audit events.

Every change is one transaction that includes its audit event, and is durable when the call returns. `app.promotion` decides
which engine may go live. Calls come one at a time, and block for as long as the disk takes.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from app.registry import chain
from app.registry.errors import Conflict, GenerationMoved, StorageFailed
from app.registry.store import PUT_BACK, open_to_read, open_to_write, translated, writer_lock
from app.registry.values import (
    Alias,
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
    RouteChange,
)
from gates.decode.decoder import canonical

Row = TypeVar("Row")
Record = KnownArtefact | KnownEngine | KnownReport | OperationRow
Changing = OperationRow | KnownKey | KnownOperator

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
"""Where columns are not the fields themselves; `_columns` is the way back."""


def _columns(value: Any) -> dict[str, Any]:
    row = asdict(value)
    if isinstance(value, KnownArtefact):
        row["parents"] = canonical(value.parents).decode()
    return {**row.pop("limits", {}), **row}


class RegistryReader:
    """Reads the registry, also while a gateway writes to it. Methods raise StorageFailed where SQLite or a row cannot be read."""

    def __init__(self, path: Path) -> None:
        """Open it without the writer's lock. Raises NotARegistry, StorageFailed."""
        self._connection = open_to_read(path)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def all(
        self, kind: type[Row], where: str = "TRUE", /, *values: Any, order: str = "rowid", **columns: Any
    ) -> tuple[Row, ...]:
        """The values of a kind that meet a condition and have these columns; the oldest first. `order` may end in a limit."""
        wanted = " AND ".join((where, *(f"{name} = ?" for name in columns)))
        rows = self._rows(
            f"SELECT * FROM {TABLES[kind]} WHERE {wanted} ORDER BY {order}", *values, *columns.values()
        )
        decoded = _DECODED.get(kind, dict)
        return tuple(kind(**decoded(row)) for row in rows)

    def find(self, kind: type[Row], /, **columns: object) -> Row | None:
        """The value of a kind with these columns; None: it is not recorded."""
        return next(iter(self.all(kind, order="rowid LIMIT 1", **columns)), None)

    def alias(self, model: str, name: str) -> Alias | None:
        """The alias `live` or `previous` of a model; one that was cleared has a generation and no engine."""
        return self.find(Alias, model=model, name=name)

    def events(
        self, *, after: int = 0, operation: str | None = None, limit: int = 1000
    ) -> tuple[AuditEvent, ...]:
        """At most `limit` events with a higher `seq` than `after`, in order; of one operation, if given."""
        of = {} if operation is None else {"operation": operation}
        return self.all(AuditEvent, "seq > ?", after, order=f"seq LIMIT {limit:d}", **of)

    def usages(self) -> dict[str, Meter]:
        """The last written usage of each key, by name."""
        return {row.pop("name"): Meter(**row) for row in self._rows("SELECT * FROM key_usage ORDER BY name")}

    def head(self) -> AuditEvent:
        """The last event, or the genesis before the first."""
        return next(iter(self.all(AuditEvent, order="seq DESC LIMIT 1")), chain.GENESIS)

    def verify_chain(self, head: AuditEvent = chain.GENESIS, limit: int = -1) -> AuditEvent:
        """Hash the next `limit` events behind `head` again, or all, which takes some 30 us each; the last one, `head` at the end.
        Raises ChainBroken, of the first bad event."""
        after = head.seq or -(2**63)  # a first event below 1 breaks the chain, too
        return chain.verify(self.events(after=after, limit=limit), head)

    def _rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        with translated():
            return [dict(row) for row in self._connection.execute(sql, values)]


class Registry(RegistryReader):
    """The registry, readable and writable; holds the writer's lock until it is closed."""

    def __init__(self, path: Path) -> None:
        """Open it; create or migrate it where needed. Raises RegistryLocked, NotARegistry, StorageFailed."""
        self.takes_writes = True  # whether the last transaction could be written; reads may go on without it
        with ExitStack() as opened:
            opened.enter_context(writer_lock(path))
            self._connection = opened.enter_context(closing(open_to_write(path)))
            self._path, self._file = path, path.stat()
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the file and release the writer's lock. Idempotent."""
        self._opened.close()

    def checked(self) -> Self:
        """Itself. Raises StorageFailed (state_missing) if its file was deleted or replaced: SQLite goes on writing to the old one."""
        with translated():
            is_there = os.path.samestat(self._path.stat(), self._file)
        if not is_there:
            raise StorageFailed(f"another file lies where the registry was; {PUT_BACK}", "state_missing")
        return self

    def add(self, value: Record, entry: AuditEntry) -> None:
        """Add a value; no effect if it is recorded. Raises Conflict: it is recorded differently, refers to what is not, or is
        an operation whose key has begun another one, or whose model has an unfinished one."""
        key, identity = next(iter(_columns(value).items()))
        known = self.find(type(value), **{key: identity})
        if known is None:
            with self._transaction(entry):
                self._insert(value)
        elif known != value:
            raise Conflict(f"{TABLES[type(value)]} {identity} is known already, and as something else")

    def revoke(self, revocation: Revocation, entry: AuditEntry) -> None:
        """Revoke something for good; a second revocation has no effect."""
        if self.find(Revocation, thing=revocation.thing, id=revocation.id) is None:
            with self._transaction(entry):
                self._insert(revocation)

    def change(
        self, kind: type[Changing], entry: AuditEntry, move: RouteChange | None = None, **columns: object
    ) -> None:
        """Change columns of the operation, key or operator that the entry is about, and the aliases that move with it. Raises
        GenerationMoved, Conflict: there is none, it has ended or is revoked, or an alias is to point nowhere."""
        table, identity = TABLES[kind], entry.operation or entry.subject
        sets = ", ".join(f"{name} = ?" for name in columns)
        where = "id = ? AND done = 0" if kind is OperationRow else "name = ? AND revoked IS NULL"
        sql = f"UPDATE {table} SET {sets} WHERE {where}"
        with self._transaction(entry):
            if not self._connection.execute(sql, (*columns.values(), identity)).rowcount:
                raise Conflict(f"there is no {table.replace('_', ' ')} {identity:.64} that could change")
            if move is not None:
                self._move(move, entry.at)

    def note(self, entry: AuditEntry, move: RouteChange | None = None) -> AuditEvent:
        """Add an audit event, and move a model's aliases, both or none. Raises GenerationMoved, Conflict (no such engine)."""
        with self._transaction():
            if move is not None:
                self._move(move, entry.at)
            return self._note(entry)

    def add_named(self, value: KnownKey | KnownOperator, entry: AuditEntry) -> None:
        """Add a caller's key or an operator; one that was revoked gives its name away. Raises Conflict: the name is taken."""
        table = TABLES[type(value)]
        gone = f"SELECT name FROM {table} WHERE name = ? AND revoked IS NOT NULL"
        with self._transaction(entry):
            for where in ("key_usage", table) if isinstance(value, KnownKey) else (table,):
                self._connection.execute(f"DELETE FROM {where} WHERE name IN ({gone})", (value.name,))
            self._insert(value)

    def write_usage(self, meters: Mapping[str, Meter]) -> None:
        """Replace what these keys have used, in one transaction. Keys that are not known are left out."""
        with self._transaction():
            self._connection.executemany(
                "INSERT OR REPLACE INTO key_usage (name, requests, tokens, at, day, today, total)"
                " SELECT name, ?, ?, ?, ?, ?, ? FROM api_key WHERE name = ?",
                [(*meter, name) for name, meter in meters.items()],
            )

    @contextmanager
    def _transaction(self, entry: AuditEntry | None = None) -> Iterator[None]:
        """All or nothing, with the audit's entry, and durable when it ends. Raises Conflict (a constraint was violated), StorageFailed."""
        try:
            with translated(), self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                if entry is not None:
                    self._note(entry)
                yield
        except StorageFailed:
            self.takes_writes = False
            raise
        self.takes_writes = True

    def _note(self, entry: AuditEntry) -> AuditEvent:
        event = chain.link(self.head(), entry)
        self._insert(event)
        return event

    def _insert(self, value: object) -> None:
        row = _columns(value)
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        sql = f"INSERT INTO {TABLES[type(value)]} ({names}) VALUES ({marks})"
        self._connection.execute(sql, tuple(row.values()))

    def _move(self, change: RouteChange, at: str) -> None:
        known = {alias.name: alias.generation for alias in self.all(Alias, model=change.model)}
        now = known.get("live", 0)
        if change.generation not in (None, now):
            why = f"{change.model}/live is of generation {now}, not {change.generation}; read it again"
            raise GenerationMoved(why)
        for name, engine in (("live", change.live), ("previous", change.previous)):
            if engine is not None or name in known:
                alias = (change.model, name, engine, known.get(name, 0) + 1, at)
                self._connection.execute("INSERT OR REPLACE INTO alias VALUES (?, ?, ?, ?, ?)", alias)
