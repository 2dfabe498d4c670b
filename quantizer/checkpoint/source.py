"""The model to be quantized: a Hugging Face folder in BF16, F16 or F32, checked before it is loaded.

No code of the folder is ever run. Only JSON and safetensors are read; folders with code (`auto_map`) are rejected
and pickles are never opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from gates.artefact import artefact
from gates.artefact.manifest import MANIFEST, Artefact, FileEntry, root_digest
from gates.contracts.errors import ManifestError
from quantizer.core.errors import SourceError
from quantizer.verify.check import unwrapped_name
from quantizer.verify.folder import Folder, open_intact_folder

ARCHITECTURES: Final = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
}
"""`model_type` to its architecture. Of the last one, only the text model is loaded and quantized."""
FLOATS: Final = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


@dataclass(frozen=True)
class Source:
    """A folder that can be quantized. manifest: its artefact.json, if it has one."""

    folder: Folder
    manifest: Artefact | None

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def config(self) -> Mapping[str, Any]:
        return self.folder.config

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The configuration of the text model; for a text-only model, the whole configuration."""
        part = self.config.get("text_config")
        return part if isinstance(part, dict) else self.config

    @property
    def dtype(self) -> str:
        """The type of most weights, in the notation of safetensors."""
        for config in (self.config, self.text_config):
            named = config.get("dtype") or config.get("torch_dtype")
            if named in FLOATS:
                return FLOATS[named]
        return "BF16"

    @cached_property
    def names(self) -> dict[str, str]:
        """A parameter's name in memory to its name in the folder, where a vision-language wrapper adds a prefix."""
        return {unwrapped_name(name): name for name in self.folder.tensors}

    @cached_property
    def root(self) -> str:
        """The root digest of the folder."""
        return root_digest_of(self.path, self.manifest)


def root_digest_of(path: Path, manifest: Artefact | None, *, hidden: bool = True) -> str:
    """The root digest of a folder: from its manifest, else from its files. hidden: include hidden files."""
    if manifest:
        return manifest.root
    files = (file for file in path.rglob("*") if file.is_file() and file.name != MANIFEST)
    names = {file.relative_to(path): file.resolve() for file in files}
    kept = {n: file for n, file in names.items() if hidden or not any(p.startswith(".") for p in n.parts)}
    return root_digest(FileEntry(n.as_posix(), *artefact.hash_file(file)) for n, file in kept.items())


def open_source(path: Path) -> Source:
    """Open and check a folder.

    Raises SourceError with one line if the folder is missing, damaged, already quantized, of an unknown
    architecture, has code or no safetensors, or does not match its manifest.
    """
    folder = open_intact_folder(path)
    require_config(path, folder.config)
    require_known_type(path, folder.config)
    refuse_code(path, "config.json", folder.config)
    if "quantization_config" in folder.config:
        raise SourceError(f"{path}: is quantized already; give the BF16 model that it was made from")
    return Source(folder, read_manifest(path))


def read_manifest(path: Path) -> Artefact | None:
    """The manifest of a folder, None if it has none. Raises SourceError if the folder does not match it."""
    if not (path / MANIFEST).exists():
        return None
    try:
        manifest, problems = artefact.load(path), artefact.verify(path)
    except ManifestError as error:
        raise SourceError(str(error)) from None
    if problems:
        raise SourceError(f"{path}: is not what its artefact.json says: {problems[0]}")
    return manifest


def require_config(path: Path, config: Mapping[str, Any] | None) -> None:
    """Raises SourceError if the folder has no config.json."""
    if not config:
        raise SourceError(f"{path}: there is no config.json; a Hugging Face model folder is needed")


def require_known_type(path: Path, config: Mapping[str, Any]) -> None:
    """Raises SourceError if the model is of an architecture that is not supported."""
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise SourceError(f"{path}: models of type {kind!r} are not supported; supported: {known}")


def refuse_code(path: Path, name: str, document: Mapping[str, Any]) -> None:
    """Raises SourceError if a JSON document of the folder refers to code of its own."""
    if "auto_map" in document:
        raise SourceError(f"{path}: {name} has an auto_map; code of a model folder is never run, remove it")


def load_model(source: Source, dtype: torch.dtype = torch.bfloat16, device: str = "cpu") -> nn.Module:
    """Load the text model of a folder, in evaluation mode. Raises SourceError if its weights do not fit its
    configuration."""
    from transformers import AutoModelForCausalLM

    try:
        with _no_bar():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                source.path,
                dtype=dtype,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
            model, info = loaded
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise SourceError(f"{source.path}: cannot be loaded ({str(error).splitlines()[0]})") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise SourceError(f"{source.path}: lacks {len(missing)} of the model's weights, first {missing[0]}")
    return model.to(device).eval()


@contextmanager
def _no_bar() -> Iterator[None]:
    """Switch off transformers' progress bar, which appears even for a model of one shard."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
