"""A model folder as surgery sees it: its JSON documents, its tensors and its other files, as they are or as they will be.

Operations are pure functions from one checkpoint to another; only headers and JSON are loaded.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from gates.artefact.artefact import MANIFEST, Artefact
from quantizer.checkpoint.source import read_manifest, refuse_code, require_config
from quantizer.core.errors import SourceError
from quantizer.core.json_file import read_object
from quantizer.verify.folder import INDEX, PICKLES, Folder, open_folder

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
class OutputTensor:
    """A tensor to be written, from `shard` and `name` in the source; `scale`: of FP8 weights that are to be dequantized."""

    shard: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: str | None = None


@dataclass(frozen=True, slots=True)
class ModelCheckpoint:
    """The contents of a folder.

    others: files that are copied unchanged. left: files that are not part of a model. wrong_modes: files and folders with other modes
    than 0644 and 0755. owners: the user ids that own something. tensors: as they are stored.
    """

    tensors: Folder
    documents: Mapping[str, Document]
    parts: Mapping[str, OutputTensor]
    others: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    wrong_modes: tuple[str, ...] = ()
    owners: frozenset[int] = frozenset()
    manifest: Artefact | None = None

    @property
    def path(self) -> Path:
        return self.tensors.path

    @property
    def config(self) -> Document:
        return self.documents[CONFIG]

    def with_document(self, name: str, value: Document | None) -> ModelCheckpoint:
        """A copy with a document replaced; None removes it."""
        kept = {key: document for key, document in self.documents.items() if key != name}
        return replace(self, documents=kept if value is None else {**kept, name: value})


def open_checkpoint(path: Path) -> ModelCheckpoint:
    """Read a folder. Raises SourceError with one line."""
    folder = open_folder(path)
    others, left, wrong_modes, owners = _walk(path)
    for finding in folder.findings:
        if finding.severity == "error":
            raise SourceError(f"{path}: {finding}")
    documents = {name: read_object(path / name) for name in DOCUMENTS if (path / name).is_file()}
    require_config(path, documents.get(CONFIG))
    for name, document in documents.items():
        refuse_code(path, name, document)
    parts = {
        name: OutputTensor(entry.shard, name, entry.dtype, entry.shape)
        for name, entry in folder.tensors.items()
    }
    return ModelCheckpoint(folder, documents, parts, others, left, wrong_modes, owners, read_manifest(path))


def _walk(path: Path) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], frozenset[int]]:
    """Files to copy, files to leave behind, names with a wrong mode, and owners. Raises SourceError for a link or a
    pickle."""
    others: list[str] = []
    left: list[str] = []
    wrong_modes: list[str] = []
    owners = {path.stat().st_uid}
    if stat.S_IMODE(path.stat().st_mode) != FOLDER_MODE:
        wrong_modes.append(".")
    for file in _below(path):
        name, status = file.relative_to(path).as_posix(), file.lstat()
        owners.add(status.st_uid)
        if stat.S_IMODE(status.st_mode) != (FOLDER_MODE if file.is_dir() else FILE_MODE):
            wrong_modes.append(name)
        if file.is_symlink():
            raise SourceError(f"{path}: {name} is a link; copy the folder with its files (cp -rL) first")
        if file.suffix in PICKLES:
            raise SourceError(f"{path}: {name} is a pickle, which can run code when it is read; remove it")
        if file.is_dir() or file.suffix == ".safetensors" or name in (*DOCUMENTS, INDEX, MANIFEST):
            continue
        wanted = file.is_file() and any(fnmatchcase(file.name, pattern) for pattern in COPIED)
        (others if wanted else left).append(name)
    return tuple(others), tuple(left), tuple(wrong_modes), frozenset(owners)


def _below(path: Path) -> Iterator[Path]:
    """Everything below a folder in order, without hidden files and folders (.git, .cache)."""
    for file in sorted(path.iterdir()):
        if file.name.startswith("."):
            continue
        yield file
        if file.is_dir() and not file.is_symlink():
            yield from _below(file)
