"""The files of records: `shadow/YYYY-MM-DD.jsonl` in the state folder, a day (UTC) each, readable by its owner only."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

from app.shadow.record import ShadowRecord


class Store:
    """The records of a gateway. Raises OSError."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "shadow"

    def days(self) -> dict[str, Path]:
        """The files by their day, oldest first."""
        return {path.stem: path for path in sorted(self.folder.glob("????-??-??.jsonl"))}

    def append(self, record: ShadowRecord, most_bytes: float = float("inf")) -> bool:
        """Write a record, completely or not at all; False: all records would be larger than `most_bytes`."""
        line = msgspec.json.encode(record) + b"\n"
        if sum(path.stat().st_size for path in self.days().values()) + len(line) > most_bytes:
            return False
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        file = os.open(self.folder / f"{record.at.date()}.jsonl", flags, 0o600)
        try:
            if (written := os.write(file, line)) != len(line):  # the disk is full
                with suppress(OSError):
                    os.ftruncate(file, os.fstat(file).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
        return True

    def forget(self, today: date, keep_days: int) -> None:
        """Delete the records that are older than `keep_days` days, and the replies that earlier versions kept."""
        shutil.rmtree(self.folder / "replay", ignore_errors=True)
        for day, path in self.days().items():
            if day < str(today - timedelta(days=keep_days)):
                path.unlink(missing_ok=True)

    def records(self, since: datetime) -> Iterator[ShadowRecord]:
        """The valid records since a time, oldest day first; lines that are torn or of another schema are left out."""
        for day, path in self.days().items():
            if day < str(since.astimezone(UTC).date()):
                continue
            with path.open("rb") as lines:
                for line in lines:
                    with suppress(ValueError, RecursionError):
                        record = msgspec.json.decode(line, type=ShadowRecord)
                        if record.at >= since:
                            yield record
