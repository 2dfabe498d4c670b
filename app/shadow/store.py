"""The folder of records: `shadow/YYYY-MM-DD.jsonl` in the state folder, a day (UTC) each, readable by its owner only."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from app.shadow.record import ShadowRecord, parse

_ENDING: Final = ".jsonl"


class Store:
    """The files of records, one per day. Raises OSError."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "shadow"

    def days(self) -> list[date]:
        """The days that have records, oldest first."""
        found = []
        for path in self.folder.glob(f"????-??-??{_ENDING}"):
            with suppress(ValueError):
                found.append(date.fromisoformat(path.name.removesuffix(_ENDING)))
        return sorted(found)

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

    def forget(self, today: date, keep_days: int) -> None:
        """Delete the records that are older than `keep_days` days, and the replies that earlier versions kept."""
        shutil.rmtree(self.folder / "replay", ignore_errors=True)
        for day in self.days():
            if day < today - timedelta(days=keep_days):
                self._path(day).unlink(missing_ok=True)

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
