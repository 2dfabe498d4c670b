"""The only module that uses SQLite: opening, migrations, transactions, and translation of its errors.

Rollback journal with `synchronous=FULL`, truncated at each commit: a committed transaction survives a loss of power, any
other leaves no trace. A write-ahead log, which earlier versions used, maps a file beside the database into memory, and the
process dies of SIGBUS if that file is shortened. One process writes at a time, by an advisory lock on the database's folder,
which the kernel releases when the process ends.
"""

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from app.config.private import check_unwritable
from app.registry.errors import Conflict, NotARegistry, RegistryLocked, StorageFailed

APPLICATION_ID: Final = 0x4D616E6E  # "Mann"; the `user_version` counts the migrations that were applied
MIGRATIONS: Final = tuple(
    path.read_text("utf-8") for path in sorted((Path(__file__).parent / "migrations").glob("*.sql"))
)
"""A released migration is never edited: a change is a new one."""
PUT_BACK: Final = "put the state folder back from a copy and restart the gateway"
_FULL: Final = ("the state folder's disk is full: {}; make room on it", "state_full")
_HELD: Final = ("another program holds the registry: {}; end it, and try again", "state_locked")
_MISSING: Final = (f"a part of the state folder is gone: {{}}; {PUT_BACK}", "state_missing")
_OTHER: Final = ("the state folder cannot be used: {}", "state_unavailable")
_SQLITE_FAULTS: Final = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_BUSY: _HELD,
    sqlite3.SQLITE_LOCKED: _HELD,
    sqlite3.SQLITE_CANTOPEN: _MISSING,
}
"""SQLite's primary error codes: what operators are told, and the code."""
_FILE_FAULTS: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.ESTALE), _MISSING),
}
_BUSY_SECONDS: Final = 2.0  # how long a commit waits for a reader that holds the file


def script(number: int) -> str:
    """Migration `number` (from 0) and the mark that it was done, as one transaction."""
    marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number + 1};"
    return f"BEGIN IMMEDIATE; {MIGRATIONS[number]} {marks} COMMIT;"


@contextlib.contextmanager
def writer_lock(path: Path) -> Iterator[int]:
    """Hold the writer's lock on a registry's folder (another process could replace a lock file); yields its descriptor.
    Raises RegistryLocked, StorageFailed."""
    folder = path.parent
    with contextlib.ExitStack() as opened:
        with translated(f"{folder}: "):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            check_unwritable(descriptor, folder)
            for inside in (path, folder / "keys", folder / "reports"):
                if inside.exists():
                    check_unwritable(inside, inside)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                why = f"{path}: another gateway uses this state folder; stop it first"
                raise RegistryLocked(why) from None
        yield descriptor


def _touch(path: Path) -> None:
    """Create the file if it is missing, so that only its owner can read it: SQLite's would be readable for all."""
    with translated(f"{path}: "):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def open_to_write(path: Path) -> sqlite3.Connection:
    """The registry at `path`, created or migrated where needed, under the lock. Raises NotARegistry, StorageFailed."""
    _touch(path)
    with contextlib.ExitStack() as opened, translated(f"{path}: "):
        connection = _connect(opened, path)
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables or _number(connection, "application_id"):
            _check_is_ours(connection, path)
        # A write-ahead log of an earlier version is read to its end here, which needs the database for itself.
        mode = connection.execute("PRAGMA journal_mode = TRUNCATE").fetchone()[0]
        if mode != "truncate":
            raise sqlite3.OperationalError(f"its journal stays in the mode {mode}")
        connection.executescript(
            "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF"
        )
        version = _number(connection, "user_version")
        if 0 < version < len(MIGRATIONS):
            _copy(connection, path.with_name(f"{path.name}.v{version}"))
        for number in range(version, len(MIGRATIONS)):
            connection.executescript(script(number))
        opened.pop_all()
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """The registry at `path`, read-only, also beside a writer; what a killed one left half written is taken back.
    Raises NotARegistry, StorageFailed."""
    if not path.is_file():
        raise NotARegistry(f"{path}: there is no registry; a gateway makes it when it first starts")
    address = f"file:{quote(str(path.absolute()))}?mode=rw"  # with `ro` SQLite takes no journal back
    with contextlib.ExitStack() as opened, translated(f"{path}: "):
        connection = _connect(opened, address, uri=True)
        connection.execute("PRAGMA query_only = ON")
        _check_is_ours(connection, path)
        opened.pop_all()
    return connection


def backup(path: Path, target: Path) -> None:
    """Copy the registry at `path` to a file, as it is at one time; a writer may use it meanwhile. Raises RegistryError."""
    with contextlib.closing(open_to_read(path)) as connection, translated(f"{path}: "):
        _copy(connection, target)


def restore(source: Path, path: Path) -> Path | None:
    """Put a backup in the registry's place, durably; where the replaced file lies now, None if there was none.
    Raises RegistryLocked (a gateway runs), NotARegistry, StorageFailed."""
    with contextlib.closing(open_to_read(source)) as connection, translated(f"{source}: "):
        if (found := connection.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
            raise NotARegistry(f"{source}: is damaged: {found.splitlines()[0]}")
        with writer_lock(path) as folder:
            fresh, old = (path.with_name(f"{path.name}.{name}") for name in ("restoring", "replaced"))
            _copy(connection, fresh)
            had = path.exists()
            for end in ("", "-journal", "-wal", "-shm"):  # a journal belongs to the file that it lies beside
                old.with_name(old.name + end).unlink(missing_ok=True)
                if (beside := path.with_name(path.name + end)).exists():
                    beside.rename(old.with_name(old.name + end))
            fresh.rename(path)
            os.fsync(folder)
    return old if had else None


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    """Write a whole database to a file that only its owner can read, in one step. Raises StorageFailed, sqlite3.Error."""
    part = target.with_name(f"{target.name}.part")
    with translated(f"{target}: "):
        part.unlink(missing_ok=True)
        _touch(part)
        with contextlib.closing(sqlite3.connect(part)) as copy:
            connection.backup(copy)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)


def _connect(opened: contextlib.ExitStack, to: Path | str, uri: bool = False) -> sqlite3.Connection:
    """A connection that `opened` closes; another thread may use it, one call at a time."""
    made = sqlite3.connect(to, _BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri)
    made.row_factory = sqlite3.Row
    return opened.enter_context(contextlib.closing(made))


def _check_is_ours(connection: sqlite3.Connection, path: Path) -> None:
    if _number(connection, "application_id") != APPLICATION_ID:
        raise NotARegistry(f"{path}: is the database of another program")
    if _number(connection, "user_version") > len(MIGRATIONS):
        raise NotARegistry(f"{path}: was written by a later version of manners; use that one")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


@contextlib.contextmanager
def translated(where: str = "") -> Iterator[None]:
    """Translate errors of SQLite and of files in the state folder. `where` comes first in their messages, while the
    registry is opened; without it, no message names a path of the host."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise Conflict(f"the registry refuses it: {error}") from None
    except sqlite3.Error as error:
        primary = int(getattr(error, "sqlite_errorcode", 0)) & 0xFF  # the rest says how it came about
        if where and primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise NotARegistry(f"{where}{error}; put it aside, or back from a copy") from None
        words, code = _SQLITE_FAULTS.get(primary, _OTHER)
        raise StorageFailed(where + words.format(error), code) from None
    except OSError as error:
        words, code = _FILE_FAULTS.get(error.errno or 0, _OTHER)
        raise StorageFailed(where + words.format(error.strerror or type(error).__name__), code) from None
