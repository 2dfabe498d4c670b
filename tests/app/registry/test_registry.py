"""The registry: what goes in comes out, changes are all or nothing, and its history cannot be rewritten."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.registry.errors import (
    Conflict,
    GenerationMoved,
    NotARegistry,
    RegistryError,
    RegistryLocked,
    StorageFailed,
)
from app.registry.registry import TABLES, Registry, RegistryReader
from app.registry.store import script
from app.registry.values import (
    Alias,
    AuditEntry,
    KeyLimits,
    KnownArtefact,
    KnownEngine,
    KnownKey,
    KnownReport,
    Meter,
    OperationRow,
    Revocation,
    RouteChange,
)

NOW = "2026-11-21T06:00:00Z"
ENTRY = AuditEntry(at=NOW, actor="ann", verb="test", subject="annie", detail={"n": 1})
OF_OP1 = replace(ENTRY, operation="op1")
ARTEFACT = KnownArtefact(
    root="sha256:a", name="annie-nano", format="gguf-q4_k_m", base_model="annie", parents={"source": "sha256:p"}, created=NOW,
)  # fmt: skip
ENGINE = KnownEngine(digest="sha256:e", name="annie-nano", artefact="sha256:a", spec='{"driver":"embedded"}')
OTHER = replace(ENGINE, digest="sha256:o", name="other")
REPORT = KnownReport(
    digest="sha256:r", statement="sha256:s", artefact="sha256:a", suite="sha256:u", policy="sha256:p",
    baseline="sha256:b", verdict="pass", created=NOW, path="reports/r.json",
)  # fmt: skip
USAGE = Meter(requests=1.5, tokens=9.0, at=7.0, day=3, today=31, total=62)
OPERATION = OperationRow(
    id="op1", kind="promote", model="annie", phase="queued", state="{}", created=NOW, key="k", request="q"
)
LIVE = RouteChange("annie", live="sha256:e", previous=None, generation=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.sqlite"


@pytest.fixture
def registry(path: Path) -> Iterator[Registry]:
    """A registry that knows two engines."""
    with Registry(path) as it:
        it.add(ARTEFACT, ENTRY)
        it.add(ENGINE, ENTRY)
        it.add(OTHER, ENTRY)
        yield it


def everything(registry: RegistryReader) -> list[tuple[object, ...]]:
    """Every row of every table."""
    ask = registry._connection.execute
    return [(table, *row) for table in TABLES.values() for row in ask(f"SELECT * FROM {table}")]


def test_what_is_added_is_found_again_by_the_next_gateway(path: Path, registry: Registry) -> None:
    registry.add(REPORT, ENTRY)
    registry.revoke(Revocation(thing="report", id="sha256:r", reason="leaks", at=NOW), ENTRY)
    registry.add(OPERATION, ENTRY)
    registry.note(ENTRY, LIVE)
    registry.close()
    with Registry(path) as again:
        assert again.find(KnownArtefact, root="sha256:a") == ARTEFACT
        assert again.find(KnownEngine, digest="sha256:e") == ENGINE
        assert again.find(KnownReport, digest="sha256:r") == REPORT
        assert again.all(Revocation) == (Revocation(thing="report", id="sha256:r", reason="leaks", at=NOW),)
        assert again.find(OperationRow, id="op1") == OPERATION
        assert again.all(Alias) == (
            Alias(model="annie", name="live", engine="sha256:e", generation=1, since=NOW),
        )
        assert again.verify_chain().seq == 7


@pytest.mark.parametrize(
    "change, error, why",
    [
        (lambda r: r.add(replace(ARTEFACT, name="x"), ENTRY), Conflict, "known already"),
        (lambda r: r.add(replace(ENGINE, spec="{}"), ENTRY), Conflict, "known already"),
        (lambda r: r.add(replace(ENGINE, digest="d", artefact="nobody"), ENTRY), Conflict, "FOREIGN KEY"),
        (lambda r: r.add(replace(REPORT, verdict="perhaps"), ENTRY), Conflict, "CHECK"),
        (lambda r: r.note(ENTRY, replace(LIVE, live="nobody")), Conflict, "FOREIGN KEY"),
        (lambda r: r.note(ENTRY, replace(LIVE, generation=3)), GenerationMoved, "generation 0, not 3"),
        (lambda r: r.note(ENTRY, replace(LIVE, previous="nobody")), Conflict, "FOREIGN KEY"),
        (lambda r: r.change(OperationRow, OF_OP1, done=True), Conflict, "op1"),
        (lambda r: r.note(replace(ENTRY, detail={"x": float("nan")})), ValueError, "JSON"),
    ],
    ids=["artefact", "engine", "no artefact", "verdict", "no engine", "stale", "second of two", "no operation", "detail"],
)  # fmt: skip
def test_what_is_refused_leaves_no_trace(
    registry: Registry, change: object, error: type[Exception], why: str
) -> None:
    before = everything(registry)
    with pytest.raises(error, match=why):
        change(registry)  # type: ignore[operator]
    assert everything(registry) == before
    registry.note(ENTRY)  # and the next change works


def test_a_model_has_one_unfinished_operation_and_a_key_one_request(registry: Registry) -> None:
    registry.add(OPERATION, ENTRY)
    second = replace(OPERATION, id="op2", key=None)
    for refused in (second, replace(OPERATION, id="op2", model="bertha")):
        with pytest.raises(Conflict, match="UNIQUE"):
            registry.add(refused, ENTRY)
    registry.add(replace(second, model="bertha"), ENTRY)
    done = replace(OPERATION, phase="succeeded", done=True)
    registry.change(OperationRow, OF_OP1, phase="succeeded", done=True)
    assert registry.find(OperationRow, key="k") == done
    with pytest.raises(Conflict, match="op1"):
        registry.change(OperationRow, OF_OP1, done=True)
    assert [row.id for row in registry.all(OperationRow, done=False)] == ["op2"]
    assert [row.id for row in registry.all(OperationRow, order="rowid DESC LIMIT 1")] == ["op2"]


# ------------------------------------------------------------------------------------- the history


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE event SET actor = 'eve' WHERE seq = 2",
        "DELETE FROM event",
        "INSERT OR REPLACE INTO event SELECT 2, at, 'eve', verb, subject, operation, detail, prev_hash, hash FROM event WHERE seq = 2",
        "INSERT INTO event SELECT 9, at, actor, verb, subject, operation, detail, prev_hash, hash FROM event WHERE seq = 2",
        "INSERT INTO event SELECT 4, at, actor, verb, subject, operation, detail, prev_hash, hash FROM event WHERE seq = 2",
    ],
    ids=["update", "delete", "replace", "gap", "wrong hash"],
)
def test_sql_cannot_change_the_events(registry: Registry, path: Path, sql: str) -> None:
    """Whoever opens the file, as long as the triggers are there."""
    stranger = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match="event"):
        stranger.execute(sql)
    stranger.close()
    assert registry.verify_chain().seq == 3


# ----------------------------------------------------------------------------------------- the file


def test_nothing_that_is_deleted_in_the_folder_lets_a_second_writer_in(path: Path) -> None:
    with Registry(path):
        for file in path.parent.iterdir():
            file.unlink()
        with pytest.raises(RegistryLocked, match="another gateway"):
            Registry(path)


@pytest.mark.parametrize(
    "inside, mode, right", [(".", 0o777, 700), (".", 0o702, 700), ("registry.sqlite", 0o666, 600), ("keys", 0o770, 700)]
)  # fmt: skip
def test_a_folder_that_others_write_to_is_refused_with_the_cure(
    path: Path, inside: str, mode: int, right: int
) -> None:
    Registry(path).close()
    (path.parent / "keys").mkdir()
    (path.parent / inside).chmod(mode)
    with pytest.raises(StorageFailed, match=f"mode {mode:o}.*chmod {right} {path.parent / inside}"):
        Registry(path)


def test_a_reader_sees_what_is_committed_and_cannot_write(registry: Registry, path: Path) -> None:
    with RegistryReader(path) as reader:
        assert reader.head() == registry.head()
        registry.note(ENTRY)
        assert reader.verify_chain() == registry.head()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._connection.execute("DELETE FROM alias")


def test_a_reader_takes_back_what_a_killed_writer_left_half_written(registry: Registry, path: Path) -> None:
    head, killed = registry.head(), path.with_name("killed.sqlite")
    writer = registry._connection
    writer.execute("PRAGMA cache_size = 1")  # pages are written before the commit
    writer.execute("BEGIN IMMEDIATE")
    many = [("key", f"k{number}", "lost" * 100, "t") for number in range(500)]
    writer.executemany("INSERT INTO revocation VALUES (?, ?, ?, ?)", many)
    for end in ("", "-journal"):
        shutil.copy(f"{path}{end}", f"{killed}{end}")
    writer.execute("ROLLBACK")
    with RegistryReader(killed) as reader:
        assert reader.verify_chain() == head
        assert reader.all(Revocation) == ()


def test_a_commit_is_on_the_disk_and_only_its_owner_reads_it(registry: Registry, path: Path) -> None:
    pragmas = {
        name: registry._connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys")
    }
    assert pragmas == {"journal_mode": "truncate", "synchronous": 2, "foreign_keys": 1}
    assert [oct(p.stat().st_mode & 0o777) for p in path.parent.iterdir()] == ["0o600"] * 2


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()


def newer(path: Path) -> None:
    Registry(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    "make, error",
    [
        (foreign, NotARegistry),
        (newer, NotARegistry),
        (lambda path: path.write_bytes(b"not a database, and long enough to be taken for one" * 20), NotARegistry),
        (lambda path: path.mkdir(), RegistryError),
    ],
    ids=["another program's", "a later version's", "no database", "a folder"],
)  # fmt: skip
@pytest.mark.parametrize("open_it", [Registry, RegistryReader])
def test_a_file_that_is_not_ours_is_left_alone(
    path: Path, make: object, error: type[Exception], open_it: object
) -> None:
    make(path)  # type: ignore[operator]
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(error):
        open_it(path)  # type: ignore[operator]
    assert before == (path.read_bytes() if path.is_file() else None)


def test_a_registry_of_the_first_version_that_was_killed_is_migrated_and_keeps_what_it_held(
    path: Path, tmp_path: Path
) -> None:
    """Keys and operators came with the second version; the first kept a write-ahead log, which is read to its end."""
    earlier = sqlite3.connect(tmp_path / "earlier", isolation_level=None)
    earlier.execute("PRAGMA journal_mode = WAL")
    earlier.executescript(script(0))
    earlier.execute("INSERT INTO revocation VALUES ('key', 'k', 'lost', 't')")
    for end in ("", "-wal", "-shm"):
        shutil.copy(tmp_path / f"earlier{end}", f"{path}{end}")
    earlier.close()
    key = KnownKey(name="kitchen", digest="00", limits=KeyLimits(rpm=5), created="t1")
    entry = AuditEntry(at="t2", actor="admin", verb="api_key.added", subject="kitchen")
    with Registry(path) as registry:
        assert registry.find(Revocation, thing="key", id="k") is not None
        registry.add_named(key, entry)
        registry.write_usage({"kitchen": USAGE, "nobody": USAGE})
    assert not path.with_name(f"{path.name}-wal").exists()
    with RegistryReader(path) as reader:
        assert (reader.all(KnownKey), reader.usages()) == ((key,), {"kitchen": USAGE})
    with closing(sqlite3.connect(path.with_name(f"{path.name}.v1"))) as copy:
        assert copy.execute("PRAGMA user_version").fetchone() == (1,)
        assert copy.execute("SELECT id FROM revocation").fetchone() == ("k",)


def test_a_name_is_free_again_when_its_key_was_revoked_and_nothing_is_inherited(path: Path) -> None:
    key = KnownKey(name="kitchen", digest="00", created="t1")
    entry = AuditEntry(at="t2", actor="admin", verb="api_key", subject="kitchen")
    with Registry(path) as registry:
        registry.add_named(key, entry)
        registry.write_usage({"kitchen": USAGE})
        with pytest.raises(Conflict):
            registry.add_named(replace(key, digest="01"), entry)
        registry.change(KnownKey, entry, revoked="t3")
        with pytest.raises(Conflict):
            registry.change(KnownKey, entry, revoked="t3")
        registry.add_named(replace(key, digest="01"), entry)
        assert (registry.usages(), [known.revoked for known in registry.all(KnownKey)]) == ({}, [None])
