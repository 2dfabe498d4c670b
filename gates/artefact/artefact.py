"""The identity of a model artefact: a folder of files, sealed by its `artefact.json`; and whether two are forms of the same model.

An artefact is identified by its root digest alone: the SHA-256 of one line for each regular file but the manifest,
"<sha256 in hex><two spaces><path><newline>", in byte order of the paths. Without this program:

    find . -type f ! -path ./artefact.json -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum

A folder is complete once it has a manifest. Links are not followed; a link in a folder is a problem.

Only of one model does a comparison measure the quantization. Two artefacts are forms of it if both name the same base model, and one
descends from the weights that the other is a conversion of. Parents have a role: `source` (a conversion) and `teacher` (recovery) keep
the model the same; `base` (training from other weights) may change it. A fine-tune is not its base, and two fine-tunes of one base are
two models.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from gates.artefact.durable import draft, sync
from gates.contracts import strict_json
from gates.contracts.errors import ManifestError
from gates.decode.decoder import DecodeError, Meta, Text, read
from gates.decode.files import read_text

SCHEMA: Final = "manners/artefact/v1"
MANIFEST: Final = "artefact.json"

_Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
_Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
# A container format, a dash and a number format: hf-bf16, hf-nvfp4, gguf-f16, gguf-q4_k_m, ...
_Format = Annotated[str, Meta(pattern=r"^(hf|gguf)-[a-z0-9][a-z0-9_]*\Z")]
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: `path` relative with `/`, `size` in bytes, `sha256` as 64 hex digits."""

    path: str
    size: Annotated[int, Meta(ge=0)]
    sha256: _Hex


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an artefact comes from; the root digest does not cover it. `parents`: a role to a root; `tools`: a program to its version."""

    base_model: Text | None = None
    parents: Mapping[str, _Digest] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    data_digest: _Digest | None = None
    tools: Mapping[str, Text] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """An artefact as a report states it. Lineage compares these."""

    name: str
    format: str
    root: str
    base_model: str | None
    parents: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A sealed folder's manifest. `created` is RFC 3339 in UTC, to the second. In the file the provenance's keys stand among the others."""

    name: _Name
    format: _Format
    root: _Digest
    files: Annotated[tuple[FileEntry, ...], Meta(min_length=1)]
    created: str
    provenance: Provenance = field(default_factory=Provenance)

    @property
    def identity(self) -> ModelIdentity:
        origin = self.provenance
        return ModelIdentity(self.name, self.format, self.root, origin.base_model, origin.parents)


def root_digest(files: Iterable[FileEntry]) -> str:
    """The root digest over file entries in any order."""
    ordered = sorted(files, key=lambda entry: entry.path.encode())
    lines = "".join(f"{entry.sha256}  {entry.path}\n" for entry in ordered)
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def sound_path(path: str) -> bool:
    """Whether a relative path stays inside the folder and is printable on one line."""
    try:
        path.encode()
    except UnicodeEncodeError:  # file names that are not UTF-8 contain surrogates
        return False
    parts = path.split("/")
    return path.isprintable() and "\\" not in path and not {"", ".", ".."} & set(parts)


def render(artefact: Artefact) -> str:
    """The manifest as JSON text with an indent of two. The same values always give the same bytes."""
    document = asdict(artefact)
    created, origin = document.pop("created"), document.pop("provenance")
    for table in ("parents", "tools"):
        origin[table] = dict(sorted(origin[table].items()))
    document = {"schema": SCHEMA, **document, **origin, "created": created}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def parse(text: str, where: str = MANIFEST) -> Artefact:
    """Read a manifest. Raises ManifestError, one line that names the place of the fault."""
    try:
        value = strict_json.loads(text)
    except ValueError as error:
        raise ManifestError(f"{where}: not JSON, cut off or damaged ({error})") from None
    if not isinstance(value, dict) or value.pop("schema", None) != SCHEMA:
        raise ManifestError(f"{where}: schema: must be {SCHEMA}")
    origin = {name: value.pop(name) for name in _ORIGIN if name in value}
    try:
        artefact = read(Artefact, {**value, "provenance": origin})
    except DecodeError as error:
        raise ManifestError(f"{where}: {str(error).removeprefix('provenance.')}") from None
    for fault in _faults(artefact):
        raise ManifestError(f"{where}: {fault}")
    return artefact


def _faults(document: Artefact) -> Iterator[str]:
    """What is wrong with values whose types are right."""
    for i, file in enumerate(document.files):
        if not sound_path(file.path) or file.path == MANIFEST:
            yield f"files[{i}].path {ascii(file.path)[:80]} is not a plain path inside the folder"
    paths = [file.path.encode() for file in document.files]
    if paths != sorted(set(paths)):
        yield "files must be in byte order of their paths, each named once"
    if document.root != root_digest(document.files):
        yield "root does not follow from the listed files; the manifest was edited"
    try:
        datetime.strptime(document.created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        yield f"created is {document.created!r:.80}; expected UTC as 2026-11-21T09:30:00Z"


_ORIGIN: Final = tuple(one.name for one in fields(Provenance))
_SAME_MODEL: Final = ("source", "teacher")


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whether two artefacts are the same model; usable as a bool. `reason` is one line."""

    same: bool
    reason: str

    def __bool__(self) -> bool:
        return self.same


UNCHECKED: Final = Lineage(False, "the baseline's lineage was not checked")


def same_lineage(
    candidate: ModelIdentity, baseline: ModelIdentity, others: Iterable[ModelIdentity] = ()
) -> Lineage:
    """Whether the baseline is another form of the candidate's model. `others`: those through which ancestors are found."""
    if candidate.root == baseline.root:
        return Lineage(True, f"both are {baseline.root}")
    if candidate.base_model != baseline.base_model:
        based = (
            f"{one.name} ({one.format}) {f'is based on {one.base_model}' if one.base_model else 'names no base model'}"
            for one in (candidate, baseline)
        )
        return Lineage(False, "; ".join(based))
    known = {a.root: a for a in (candidate, baseline, *others)}
    for child, parent in ((candidate, baseline), (baseline, candidate)):
        common = ancestors(child, known) & ancestors(parent, known, _SAME_MODEL)
        if common:
            return Lineage(True, f"both come from {min(common)}")
    return Lineage(
        False,
        f"neither {candidate.name} ({candidate.format}) nor {baseline.name} ({baseline.format}) comes from "
        "what the other is made of, by the parents in their manifests",
    )


def ancestors(
    artefact: ModelIdentity, known: Mapping[str, ModelIdentity], roles: tuple[str, ...] | None = None
) -> frozenset[str]:
    """The artefact's root and the roots it was made from, as far as `known` has them; through some roles only if given."""
    found: set[str] = set()
    waiting = [artefact.root]
    while waiting:
        root = waiting.pop()
        if root in found:
            continue
        found.add(root)
        if root in known:
            parents = known[root].parents
            waiting += [digest for role, digest in parents.items() if roles is None or role in roles]
    return frozenset(found)


# ----------------------------------------------------------------------------------------- folders

# Largest manifest that will be read, in bytes. One with a thousand shards takes about 150 kB.
MAX_MANIFEST_BYTES: Final = 4 * 2**20
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
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def hash_files(paths: Iterable[Path]) -> list[tuple[int, str]]:
    """`hash_file` of each path in order, several at a time: one core hashes slower than a disk reads."""
    with ThreadPoolExecutor(min(_HASHERS, os.cpu_count() or 1)) as pool:
        return list(pool.map(hash_file, paths))


Snapshot = tuple[tuple[str, int, int, int, int, int], ...]
"""For each file and folder: path, device, inode, size in bytes, mtime and ctime in nanoseconds."""


def snapshot(path: Path) -> Snapshot:
    """The metadata of an artefact's folder and everything in it, or of a single file: any write, rename or link changes a ctime, which no system call
    can set back, so equal snapshots prove equal files. Raises OSError.
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


def seal(
    folder: Path, *, name: str, format: str, created: datetime, provenance: Provenance | None = None
) -> Artefact:
    """Hash a folder's files, flush them to disk, and write the manifest last, by a rename. Raises ManifestError for links and unusable names."""
    (_checked_folder(folder) / MANIFEST).unlink(missing_ok=True)
    paths = []
    for path, fault in _walk(folder):
        if fault:
            raise ManifestError(f"{folder}: {path} is a {fault} file; an artefact holds plain files")
        if not sound_path(path):
            raise ManifestError(f"{folder}: the file name {path!a} cannot be part of an artefact")
        paths.append(path)
    if not paths:
        raise ManifestError(f"{folder}: there is no file to describe")
    paths.sort(key=str.encode)
    hashed = zip(paths, hash_files(folder / path for path in paths), strict=True)
    files = tuple(FileEntry(path, *found) for path, found in hashed)
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
