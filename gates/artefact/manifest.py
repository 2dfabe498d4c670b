"""The text of `artefact.json` and its values, read strictly; and whether two artefacts are forms of the same model. Pure.

Only of one model does a comparison measure the quantization. Two artefacts are forms of it if both name the same base model, and one
descends from the weights that the other is a conversion of. Parents have a role: `source` (a conversion) and `teacher` (recovery) keep
the model the same; `base` (training from other weights) may change it. A fine-tune is not its base, and two fine-tunes of one base are
two models.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from gates.contracts import strict_json
from gates.contracts.errors import ManifestError
from gates.decode.decoder import DecodeError, Meta, Text, read

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
class Artefact:
    """A sealed folder's manifest. `created` is RFC 3339 in UTC, to the second. In the file the provenance's keys stand among the others."""

    name: _Name
    format: _Format
    root: _Digest
    files: Annotated[tuple[FileEntry, ...], Meta(min_length=1)]
    created: str
    provenance: Provenance = field(default_factory=Provenance)


def root_digest(files: Iterable[FileEntry]) -> str:
    """The root digest over file entries in any order, as defined in `gates/artefact/artefact.py`."""
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


def same_lineage(candidate: Artefact, baseline: Artefact, others: Iterable[Artefact] = ()) -> Lineage:
    """Whether the baseline is another form of the candidate's model. `others`: artefacts through which ancestors are found."""
    if candidate.root == baseline.root:
        return Lineage(True, f"both are {baseline.root}")
    ours, theirs = candidate.provenance.base_model, baseline.provenance.base_model
    if ours != theirs:
        return Lineage(False, f"{_base_model_text(candidate)}; {_base_model_text(baseline)}")
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


def _base_model_text(artefact: Artefact) -> str:
    base = artefact.provenance.base_model
    return f"{artefact.name} ({artefact.format}) {f'is based on {base}' if base else 'names no base model'}"


def ancestors(
    artefact: Artefact, known: Mapping[str, Artefact], roles: tuple[str, ...] | None = None
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
            parents = known[root].provenance.parents
            waiting += [digest for role, digest in parents.items() if roles is None or role in roles]
    return frozenset(found)
