"""The folder of records: one file a day, readable by its owner only, and no day older than allowed.

state/shadow/2026-11-21.jsonl           records of that day (UTC)
state/shadow/replay/2026-11-21.jsonl    what engines answered when they were asked them again
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from app.shadow.record import Record, parse

FOLDER: Final = "shadow"
REPLAYS: Final = "replay"
_ENDING: Final = ".jsonl"


class Store:
    """Days of records in a folder. Raises OSError for what the disk refuses."""

    def __init__(self, state: Path) -> None:
        self.folder = state / FOLDER

    def days(self) -> list[date]:
        """The days that there are records of, oldest first."""
        return _days(self.folder)

    def size(self) -> int:
        """Bytes of all records."""
        return sum(self._path(day).stat().st_size for day in self.days())

    def append(self, day: date, line: bytes) -> None:
        """One more line of a day, whole or not at all: what a full disk took of it is cut off again."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        file = os.open(self._path(day), flags, 0o600)
        try:
            if (written := os.write(file, line)) != len(line):
                with suppress(OSError):
                    os.ftruncate(file, os.fstat(file).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def forget_before(self, first: date) -> None:
        """Delete the days before this one, and what was answered to them."""
        for folder in (self.folder, self.folder / REPLAYS):
            for day in _days(folder):
                if day < first:
                    (folder / f"{day}{_ENDING}").unlink(missing_ok=True)

    def forget(self, day: date) -> None:
        """Delete one day, and what was answered to it."""
        self._path(day).unlink(missing_ok=True)
        self.replay(day).unlink(missing_ok=True)

    def replay(self, day: date) -> Path:
        """Where answers to a day's records are kept; the folder is made."""
        folder = self.folder / REPLAYS
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / f"{day}{_ENDING}"

    def records(self, since: datetime) -> Iterator[Record]:
        """Sound records from then on, each once, oldest first."""
        seen: set[str] = set()
        for day in self.days():
            if day < since.astimezone(UTC).date():
                continue
            with self._path(day).open("rb") as lines:
                for line in lines:
                    record = parse(line)
                    if record is not None and record.id not in seen and record.when >= since:
                        seen.add(record.id)
                        yield record

    def _path(self, day: date) -> Path:
        return self.folder / f"{day}{_ENDING}"


def first_kept(today: date, keep_days: int) -> date:
    """The oldest day that may stay: today is the last of `keep_days` whole days and itself."""
    return today - timedelta(days=keep_days)


def _days(folder: Path) -> list[date]:
    found = []
    for path in folder.glob(f"????-??-??{_ENDING}"):
        with suppress(ValueError):
            found.append(date.fromisoformat(path.name.removesuffix(_ENDING)))
    return sorted(found)
