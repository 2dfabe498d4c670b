"""The sample store: `samples.jsonl`, the only file that a run writes while it asks.

When `append` returns, the samples are on disk. An incomplete last line, left by a crash, is cut off at the next start; anything else
that is wrong raises SamplesError. A file belongs to one run, has one writer, and holds every key once.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from gates.artefact.durable import sync
from gates.contracts.errors import RunError, SamplesError
from gates.contracts.sample import SCHEMA, Sample, SampleKey, parse, render
from gates.run.request import body_digest

_HEAD: Final = f'{{"schema":"{SCHEMA}"'.encode()

Arms = Mapping[str, tuple[str, str]]
"""By arm the digests of its artefact, and of the engine that serves that."""


class SampleStore:
    """An open samples file, locked for this process."""

    def __init__(self, path: Path, *, suite: str, arms: Arms | None = None) -> None:
        """Open or create the file of a run, whose arms have these identities. Raises SamplesError: damaged, another run's, or open elsewhere."""
        self.path, self._suite, self._arms = path, suite, dict(arms or {})
        self._keys: set[str] = set()
        self._file = _open(path)
        try:
            with open(self._file, "rb", closefd=False) as file:
                stored = _stored(file, path, suite, self._arms, self._keys, torn=True)
                self._size = sum(size for _, size in stored)
            os.ftruncate(self._file, self._size)
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
        keys, lines = set(self._keys), list[bytes]()
        for sample in samples:
            _check(sample, self._suite, self._arms, keys, str(self.path))
            lines.append(render(sample).encode("ascii"))
        data = left = b"".join(lines)
        try:
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):  # if this fails too, the next open cuts the line off
                os.ftruncate(self._file, self._size)
            raise RunError(
                f"{self.path}: cannot be written ({error.strerror}); free the disk and run again: "
                f"the {len(self)} samples before are safe"
            ) from error
        self._size += len(data)
        self._keys = keys


def read_samples(path: Path, *, suite: str | None = None) -> Iterator[Sample]:
    """Every sample of a complete file; of any suite if None. Raises SamplesError."""
    try:
        with path.open("rb") as file:
            yield from (sample for sample, _ in _stored(file, path, suite, {}, set()))
    except OSError as error:
        raise SamplesError(f"{path}: cannot be read ({error.strerror})") from None


def _stored(
    file: BinaryIO, path: Path, suite: str | None, arms: Arms, keys: set[str], torn: bool = False
) -> Iterator[tuple[Sample, int]]:
    """Every sample, and the size of its line; its key is added to `keys`. `torn`: an incomplete last line is no error."""
    for number, line in enumerate(file, start=1):
        where = f"{path}:{number}"
        if not line.endswith(b"\n"):
            # A first line that no sample begins with is another program's file; zeroes are left by a crash of the host.
            if torn and (number > 1 or _HEAD.startswith(line[: len(_HEAD)]) or not line.strip(b"\0")):
                return
            raise SamplesError(f"{where}: the last line is torn; it was cut in writing")
        try:
            sample = parse(line.decode("ascii"), where)
        except UnicodeDecodeError:
            raise SamplesError(f"{where}: not a whole sample (bytes that are never written)") from None
        _check(sample, suite, arms, keys, where)
        yield sample, len(line)


def _check(sample: Sample, suite: str | None, arms: Arms, keys: set[str], where: str) -> None:
    """Raise SamplesError for a sample that may not be in this file; else add its key to `keys`."""
    key, why = sample.key, ""
    known = arms.get(key.arm, (key.artefact, key.engine))
    if suite is not None and key.suite != suite:
        why = f"a sample of the suite {key.suite}, and this run's is {suite}; {_ANEW}"
    elif body_digest(sample.request) != key.request:
        why = "the request is not the one in the key; the line was edited"
    elif key.digest in keys:
        why = f"{key.arm}/{key.case} ({key.mode}, repeat {key.repeat}) is there a second time; the file was edited"
    elif known != (key.artefact, key.engine):
        what = "artefact" if known[0] != key.artefact else "engine"
        why = f"{key.arm} was another {what} when this was asked; {_ANEW}"
    if why:
        raise SamplesError(f"{where}: {why}")
    keys.add(key.digest)


_ANEW: Final = "give the run a folder of its own (--out DIR)"


def _open(path: Path) -> int:
    """A file descriptor for reading and appending that holds the file's lock."""
    try:
        new = not path.exists()
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise SamplesError(f"{path}: another run is writing it; wait for its end, or stop it") from None
    except OSError as error:
        raise SamplesError(f"{path}: cannot be opened ({error.strerror})") from None
    if new:
        sync(path.parent)
    return file
