"""The identity of a model artefact: a folder of files, sealed by its `artefact.json`.

An artefact is identified by its root digest alone: the SHA-256 of one line for each regular file but the manifest,
"<sha256 in hex><two spaces><path><newline>", in byte order of the paths. Without this program:

    find . -type f ! -path ./artefact.json -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum

A folder is complete once it has a manifest. Links are not followed; a link in a folder is a problem.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from gates.artefact.durable import draft, sync
from gates.artefact.manifest import (
    MANIFEST,
    Artefact,
    FileEntry,
    Provenance,
    parse,
    render,
    root_digest,
    sound_path,
)
from gates.contracts.errors import ManifestError
from gates.decode.files import read_text

# Largest manifest that will be read, in bytes. One with a thousand shards takes about 150 kB.
MAX_MANIFEST_BYTES: Final = 4 * 2**20
_CHUNK: Final = 2**20  # bytes hashed at a time
_HASHERS: Final = 8

Kind = Literal["missing", "extra", "changed", "symlink", "special"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One way in which a folder differs from its manifest."""

    kind: Kind
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}" + (f" ({self.detail})" if self.detail else "")


def hash_file(path: Path) -> tuple[int, str]:
    """Size in bytes and SHA-256 (hex) of a file's content. Links are not followed."""
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def hash_files(paths: Iterable[Path]) -> list[tuple[int, str]]:
    """`hash_file` of each path in order, several at a time: one core hashes slower than a disk reads."""
    with ThreadPoolExecutor(min(_HASHERS, os.cpu_count() or 1)) as pool:
        return list(pool.map(hash_file, paths))


Snapshot = tuple[tuple[str, int, int, int, int, int], ...]
"""For each file and folder: path, device, inode, size in bytes, mtime and ctime in nanoseconds."""


def snapshot(path: Path) -> Snapshot:
    """The file system's metadata of an artefact: of its folder and everything in it, or of a single file. Raises OSError.

    Any write, rename or link changes a ctime, which no system call can set back: equal snapshots prove equal files.
    """
    folder = folder_of(path)
    if not (folder / MANIFEST).is_file():
        return (_file_facts(path),)
    inside = (Path(root) / name for root, below, files in os.walk(folder) for name in (*below, *files))
    return (_file_facts(folder), *map(_file_facts, sorted(inside)))


def _file_facts(path: Path) -> tuple[str, int, int, int, int, int]:
    found = path.lstat()
    return (str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _walk(folder: Path, below: str = "") -> Iterator[tuple[str, Kind | None]]:
    """Every path below a folder except the manifest, with its problem if it is not a regular file."""
    for entry in sorted(os.scandir(folder / below), key=lambda item: item.name):
        path = f"{below}{entry.name}"
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            yield path, "symlink"
        elif stat.S_ISDIR(mode):
            yield from _walk(folder, f"{path}/")
        elif not stat.S_ISREG(mode):
            yield path, "special"
        elif path != MANIFEST:
            yield path, None


# -------------------------------------------------------------------------------- describe and seal


def describe_files(folder: Path) -> tuple[FileEntry, ...]:
    """Hash every file below a folder. Raises ManifestError for links and unusable names."""
    paths = []
    for path, fault in _walk(_checked_folder(folder)):
        if fault:
            raise ManifestError(f"{folder}: {path} is a {fault} file; an artefact holds plain files")
        if not sound_path(path):
            raise ManifestError(f"{folder}: the file name {path!a} cannot be part of an artefact")
        paths.append(path)
    if not paths:
        raise ManifestError(f"{folder}: there is no file to describe")
    paths.sort(key=str.encode)
    found = hash_files(folder / path for path in paths)
    return tuple(FileEntry(path, *one) for path, one in zip(paths, found, strict=True))


def seal(
    folder: Path,
    *,
    name: str,
    format: str,
    created: datetime,
    provenance: Provenance | None = None,
) -> Artefact:
    """Flush a folder's files to disk, and write its manifest last, by a rename."""
    (_checked_folder(folder) / MANIFEST).unlink(missing_ok=True)
    files = describe_files(folder)
    stamp = created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = Artefact(name, format, root_digest(files), files, stamp, provenance or Provenance())
    artefact = parse(render(made), where=str(folder))  # so that the written manifest can be read
    for entry in artefact.files:
        sync(folder / entry.path)
    # The draft lies beside the folder, so that a crash never leaves an extra file inside it.
    beside = folder.resolve().parent / f"{folder.resolve().name}.{MANIFEST}"
    draft(beside, render(artefact).encode(), 0o644).replace(folder / MANIFEST)
    sync(folder)
    return artefact


def folder_for(path: Path) -> Path:
    """The folder to seal: a GGUF file gets one beside it that holds a hard link to it, so that several may lie together."""
    folder = path.with_suffix("") if path.suffix == ".gguf" and path.is_file() else path
    if folder != path:
        folder.mkdir(exist_ok=True)
        (folder / path.name).unlink(missing_ok=True)
        (folder / path.name).hardlink_to(path)
    return folder


# --------------------------------------------------------------------------------- load and verify


def load(folder: Path) -> Artefact:
    """Read a folder's manifest without looking at its files (see `verify`). Raises ManifestError."""
    path = _checked_folder(folder) / MANIFEST
    if path.is_symlink():
        raise ManifestError(f"{path}: is a link; a manifest must be a plain file")
    if not path.is_file():
        raise ManifestError(
            f"{folder}: no {MANIFEST}; the folder is not complete, or nobody has sealed it (`manners gate seal`)"
        )
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise ManifestError(f"{path}: larger than {MAX_MANIFEST_BYTES} bytes")
    return parse(read_text(path, ManifestError), where=str(path))


def verify(folder: Path) -> list[Problem]:
    """Hash the folder again and return every difference from the manifest; an empty list means that it is intact."""
    expected = {entry.path: entry for entry in load(folder).files}
    walked = dict(_walk(folder))
    sound = [path for path, fault in walked.items() if not fault and path in expected]
    found = dict(zip(sound, hash_files(folder / path for path in sound), strict=True))
    problems = []
    for path, fault in walked.items():
        if fault or path not in expected:
            problems.append(Problem(fault or "extra", path))
        elif found[path] != ((was := expected[path]).size, was.sha256):
            size = found[path][0]
            other = f"{size} bytes, not {was.size}" if size != was.size else "same size, other content"
            problems.append(Problem("changed", path, other))
    return problems + [Problem("missing", path) for path in sorted(expected.keys() - walked.keys())]


def folder_of(path: Path) -> Path:
    """The artefact's folder for a configured path, which is the folder itself or a file in it."""
    return path if path.is_dir() else path.parent


def _checked_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise ManifestError(f"{folder}: no such folder")
    return folder
