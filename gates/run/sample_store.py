"""The sample store: `samples.jsonl`, the only file that a run writes while it asks.

When `append` returns, the samples are on disk. An incomplete last line, left by a crash, is cut off at the next start; anything else
that is wrong raises SamplesError. A file belongs to one run, has one writer, and holds every key once.
"""

import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gates.artefact.durable import sync
from gates.contracts.errors import RunError, SamplesError
from gates.contracts.sample import SCHEMA, Sample, SampleKey, parse, render
from gates.run.request import body_digest

_HEAD: Final = f'{{"schema":"{SCHEMA}"'.encode()

Identity = tuple[str, str]
"""The digests of an artefact and of the engine that serves it."""


class SampleStore:
    """An open samples file, locked for this process."""

    def __init__(self, path: Path, *, suite: str, arms: Mapping[str, Identity] | None = None) -> None:
        """Open or create the file of a run over this suite. `arms`: the identities that the run knows. Raises SamplesError: no regular
        file, damaged, another run's, or open in another process.
        """
        self.path, self._suite, self._arms = path, suite, dict(arms or {})
        self._keys: set[str] = set()
        self._file = _open(path)
        try:
            self._size = self._recover()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, SampleKey) and key.digest in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def close(self) -> None:
        """Close the file, which releases its lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def samples(self) -> Iterator[Sample]:
        """The stored samples, in the order in which they were written."""
        return read_samples(self.path, suite=self._suite)

    def append(self, samples: Iterable[Sample]) -> None:
        """Write samples to disk, with one fsync for all. Raises SamplesError: a key is there or another run's; RunError: the disk refuses."""
        lines: list[bytes] = []
        new: set[str] = set()
        for sample in samples:
            if sample.key in self:
                raise SamplesError(
                    f"{self.path}: {_name(sample.key)} is there already; nothing is asked twice"
                )
            _check(sample, self._suite, self._arms, new, str(self.path))
            lines.append(render(sample).encode("ascii"))
        data = b"".join(lines)
        try:
            _write(self._file, data)
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):  # if this fails too, the next open cuts the line off
                os.ftruncate(self._file, self._size)
            raise RunError(
                f"{self.path}: cannot be written ({error.strerror}); free the disk and run again: "
                f"the {len(self)} samples before are safe"
            ) from error
        self._size += len(data)
        self._keys |= new

    def _recover(self) -> int:
        """Read all keys and cut off an incomplete last line. Returns the size of the valid part."""
        sound = 0
        with open(self._file, "rb", closefd=False) as file:
            for sample, size in _parsed(file, self.path, torn_ok=True):
                _check(sample, self._suite, self._arms, self._keys, f"{self.path}:{len(self) + 1}")
                sound += size
        if os.fstat(self._file).st_size > sound:
            os.ftruncate(self._file, sound)
            os.fsync(self._file)
        return sound


def read_samples(path: Path, *, suite: str | None = None) -> Iterator[Sample]:
    """Every sample of a complete file; of any suite if None. Raises SamplesError."""
    keys: set[str] = set()
    try:
        with path.open("rb") as file:
            for number, (sample, _) in enumerate(_parsed(file, path, torn_ok=False), start=1):
                _check(sample, suite, {}, keys, f"{path}:{number}")
                yield sample
    except OSError as error:
        raise SamplesError(f"{path}: cannot be read ({error.strerror})") from None


def _parsed(lines: Iterable[bytes], path: Path, torn_ok: bool) -> Iterator[tuple[Sample, int]]:
    """Every valid line and its size. An incomplete last line ends the iteration or raises SamplesError."""
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        if not line.endswith(b"\n"):
            if torn_ok and (number > 1 or _HEAD.startswith(line[: len(_HEAD)]) or not line.strip(b"\0")):
                return
            raise SamplesError(f"{where}: the last line is torn; it was cut in writing")
        try:
            text = line.decode("ascii")
        except UnicodeDecodeError:
            raise SamplesError(f"{where}: not a whole sample (bytes that are never written)") from None
        yield parse(text, where), len(line)


def _check(
    sample: Sample, suite: str | None, arms: Mapping[str, Identity], keys: set[str], where: str
) -> None:
    """Raise SamplesError for a sample that may not be in this file; else add its key to `keys`."""
    key = sample.key
    if suite is not None and key.suite != suite:
        raise SamplesError(
            f"{where}: a sample of the suite {key.suite}, and this run's is {suite}; "
            "give the run a folder of its own (--out DIR)"
        )
    if body_digest(sample.request) != key.request:
        raise SamplesError(f"{where}: the request is not the one in the key; the line was edited")
    if key.digest in keys:
        raise SamplesError(f"{where}: {_name(key)} is there a second time; the file was edited")
    known = arms.get(key.arm, (key.artefact, key.engine))
    if known != (key.artefact, key.engine):
        what = "artefact" if known[0] != key.artefact else "engine"
        raise SamplesError(
            f"{where}: {key.arm} was another {what} when this was asked; give the run a folder of its own (--out DIR)"
        )
    keys.add(key.digest)


def _name(key: SampleKey) -> str:
    return f"{key.arm}/{key.case} ({key.mode}, repeat {key.repeat})"


def _open(path: Path) -> int:
    """A file descriptor for reading and appending that holds the file's lock."""
    try:
        new = not path.exists()
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise SamplesError(f"{path}: cannot be opened ({error.strerror})") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise SamplesError(f"{path}: is no plain file")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if new:
            sync(path.parent)
    except BlockingIOError:
        os.close(file)
        raise SamplesError(f"{path}: another run is writing it; wait for its end, or stop it") from None
    except BaseException:
        os.close(file)
        raise
    return file


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
