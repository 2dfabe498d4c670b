"""A model folder as surgery sees it: its JSON documents, its tensors, its other files; and the same as they shall be.

`open_patient` reads a folder once. Operations are pure: they take a patient and give back another one, in which
documents have changed and tensors have other names or are to be dequantized. Nothing is loaded but headers and JSON.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from gates.artefact import artefact
from gates.artefact.manifest import MANIFEST, Artefact
from gates.contracts.errors import ArtefactError
from quantizer.checkpoint.source import ARCHITECTURES
from quantizer.core.errors import SourceError
from quantizer.verify.folder import INDEX, MAX_JSON_BYTES, PICKLES, open_folder

CONFIG: Final = "config.json"
QUANT: Final = "hf_quant_config.json"
TOKENIZER: Final = "tokenizer.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
PREPROCESSOR: Final = "preprocessor_config.json"
DOCUMENTS: Final = (CONFIG, QUANT, TOKENIZER, TOKENIZER_CONFIG, PREPROCESSOR)
COPIED: Final = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.md", "LICENSE*", "NOTICE*")
FILE_MODE: Final = 0o644
FOLDER_MODE: Final = 0o755

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor as it shall be written.

    shard, name: where it lies in the source. scale: the source's tensor with the scale of FP8 weights, where these are
    to be dequantized; then dtype is BF16.
    """

    shard: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: str | None = None


@dataclass(frozen=True, slots=True)
class Patient:
    """documents: by file name, only those that are there. others: files that are copied as they are, by path in the
    folder. left: files that a model folder has no need of, which are not copied. odd: files and folders with other
    modes than 0644 and 0755. owners: the user ids that own something in the folder."""

    path: Path
    documents: Mapping[str, Document]
    parts: Mapping[str, Part]
    others: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    owners: frozenset[int] = frozenset()
    manifest: Artefact | None = None

    @property
    def config(self) -> Document:
        return self.documents[CONFIG]

    @property
    def text_config(self) -> Document:
        """The text model's part of the configuration, which is all of it in a text model."""
        part = self.config.get("text_config")
        return part if isinstance(part, dict) else self.config

    def with_document(self, name: str, value: Document | None) -> Patient:
        """With another document of this name; with None, without one."""
        kept = {key: document for key, document in self.documents.items() if key != name}
        return replace(self, documents=kept if value is None else {**kept, name: value})


def open_patient(path: Path) -> Patient:
    """Read a folder.

    Raises SourceError with one line: not there, broken, with links, pickles or code of its own, of an architecture
    that is not known, or changed since its manifest was written.
    """
    folder = open_folder(path)
    for finding in folder.findings:
        if finding.code == "link":
            raise SourceError(
                f"{path}: {finding.where} is a link; copy the folder with its files (cp -rL) first"
            )
        if finding.code == "pickle":
            raise SourceError(
                f"{path}: {finding.where} is a pickle, which can run code when it is read; remove it"
            )
        if finding.severity == "error":
            raise SourceError(f"{path}: {finding}")
    documents = _documents(path)
    _check(path, documents)
    others, left, odd, owners = _walk(path)
    parts = {
        name: Part(entry.shard, name, entry.dtype, entry.shape) for name, entry in folder.tensors.items()
    }
    return Patient(path, documents, parts, others, left, odd, owners, read_manifest(path))


def _documents(path: Path) -> dict[str, Document]:
    return {name: _read(path / name) for name in DOCUMENTS if (path / name).is_file()}


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ValueError(f"larger than {MAX_JSON_BYTES >> 20} MiB")
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise SourceError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(document, dict):
        raise SourceError(f"{path}: must be a JSON object")
    return document


def _check(path: Path, documents: Mapping[str, Document]) -> None:
    if not documents.get(CONFIG):
        raise SourceError(f"{path}: there is no config.json; a Hugging Face model folder is needed")
    for name, document in documents.items():
        if "auto_map" in document:
            raise SourceError(
                f"{path}: {name} has an auto_map; code of a model folder is never run, remove it"
            )
    kind = documents[CONFIG].get("model_type")
    if kind not in ARCHITECTURES:
        raise SourceError(
            f"{path}: models of type {kind!r} are not supported; supported: {', '.join(ARCHITECTURES)}"
        )


def read_manifest(path: Path) -> Artefact | None:
    if not (path / MANIFEST).exists():
        return None
    try:
        manifest, problems = artefact.load(path), artefact.verify(path)
    except ArtefactError as error:
        raise SourceError(str(error)) from None
    if problems:
        raise SourceError(f"{path}: is not what its artefact.json says: {problems[0]}")
    return manifest


def _walk(path: Path) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], frozenset[int]]:
    """Files to copy, files to leave, names with an odd mode, owners. Raises SourceError for a link or a pickle."""
    others: list[str] = []
    left: list[str] = []
    odd: list[str] = []
    owners = {path.stat().st_uid}
    if stat.S_IMODE(path.stat().st_mode) != FOLDER_MODE:
        odd.append(".")
    for file in _below(path):
        name, status = file.relative_to(path).as_posix(), file.lstat()
        owners.add(status.st_uid)
        if stat.S_IMODE(status.st_mode) != (FOLDER_MODE if file.is_dir() else FILE_MODE):
            odd.append(name)
        if file.is_symlink():
            raise SourceError(f"{path}: {name} is a link; copy the folder with its files (cp -rL) first")
        if file.suffix in PICKLES:
            raise SourceError(f"{path}: {name} is a pickle, which can run code when it is read; remove it")
        if file.is_dir() or file.suffix == ".safetensors" or name in (*DOCUMENTS, INDEX, MANIFEST):
            continue
        wanted = file.is_file() and any(fnmatchcase(file.name, pattern) for pattern in COPIED)
        (others if wanted else left).append(name)
    return tuple(others), tuple(left), tuple(odd), frozenset(owners)


def _below(path: Path) -> Iterator[Path]:
    """Everything below a folder in order; hidden files and folders (.git, .cache) are none of its business."""
    for file in sorted(path.iterdir()):
        if file.name.startswith("."):
            continue
        yield file
        if file.is_dir() and not file.is_symlink():
            yield from _below(file)
