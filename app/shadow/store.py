"""The folder of records: one file per day, readable by its owner only.

state/shadow/2026-11-21.jsonl           records of that day (UTC)
state/shadow/replay/2026-11-21.jsonl    replies of the engines in replays
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from app.shadow.record import ShadowRecord, parse

FOLDER: Final = "shadow"
REPLAYS: Final = "replay"
_ENDING: Final = ".jsonl"


class Store:
    """The files of records, one per day. Raises OSError."""

    def __init__(self, state: Path) -> None:
        self.folder = state / FOLDER

    def days(self) -> list[date]:
        """The days that have records, oldest first."""
        return _days(self.folder)

    def size(self) -> int:
        """The size of all records in bytes."""
        return sum(self._path(day).stat().st_size for day in self.days())

    def append(self, day: date, line: bytes) -> None:
        """Append a line to a day's file, completely or not at all: a partial write on a full disk is truncated."""
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
        """Delete the records and replies of all days before `first`."""
        for folder in (self.folder, self.folder / REPLAYS):
            for day in _days(folder):
                if day < first:
                    (folder / f"{day}{_ENDING}").unlink(missing_ok=True)

    def replay(self, day: date) -> Path:
        """The path of the replies to a day's records; its folder is created."""
        folder = self.folder / REPLAYS
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / f"{day}{_ENDING}"

    def records(self, since: datetime) -> Iterator[ShadowRecord]:
        """The valid records since a time, oldest day first."""
        for day in self.days():
            if day < since.astimezone(UTC).date():
                continue
            with self._path(day).open("rb") as lines:
                for line in lines:
                    if (record := parse(line)) is not None and record.when >= since:
                        yield record

    def _path(self, day: date) -> Path:
        return self.folder / f"{day}{_ENDING}"


def first_kept(today: date, keep_days: int) -> date:
    """The oldest day that is kept: `keep_days` days before today."""
    return today - timedelta(days=keep_days)


def _days(folder: Path) -> list[date]:
    found = []
    for path in folder.glob(f"????-??-??{_ENDING}"):
        with suppress(ValueError):
            found.append(date.fromisoformat(path.name.removesuffix(_ENDING)))
    return sorted(found)
