"""The model that is to be quantized: a Hugging Face folder in BF16 (or F16, F32), checked before it is loaded.

Nothing of the folder is ever run: only JSON and safetensors are read, code beside them (`auto_map`) and pickles are
refused.
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
from gates.artefact.manifest import Artefact, FileEntry, root_digest
from gates.contracts.errors import ArtefactError
from quantizer.core.errors import SourceError
from quantizer.verify.check import bare
from quantizer.verify.folder import Folder, open_folder

ARCHITECTURES: Final = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
}
"""`model_type` to the architecture that it comes with. Of the last, the text model is loaded and quantized."""
FLOATS: Final = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


@dataclass(frozen=True)
class Source:
    """A folder that can be quantized. manifest: of its artefact.json, where it has one."""

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
        """The text model's part of the configuration, which is all of it in a text model."""
        part = self.config.get("text_config")
        return part if isinstance(part, dict) else self.config

    @property
    def dtype(self) -> str:
        """As safetensors writes it, the type of most weights."""
        for config in (self.config, self.text_config):
            named = config.get("dtype") or config.get("torch_dtype")
            if named in FLOATS:
                return FLOATS[named]
        return "BF16"

    @cached_property
    def names(self) -> dict[str, str]:
        """A parameter's name in memory to its name in the folder, where a vision-language model adds a part."""
        return {bare(name): name for name in self.folder.tensors}

    @cached_property
    def root(self) -> str:
        """The root digest of the folder."""
        return root_of(self.path, self.manifest)


def root_of(path: Path, manifest: Artefact | None) -> str:
    """The root digest of a folder: its manifest's, or else that of its files as they lie there."""
    if manifest:
        return manifest.root
    files = (file for file in path.rglob("*") if file.is_file() and file.name != artefact.MANIFEST)
    entries = [(file.relative_to(path).as_posix(), file.resolve()) for file in files]
    return root_digest(FileEntry(name, *artefact.hash_file(place)) for name, place in entries)


def open_source(path: Path) -> Source:
    """Check a folder. Raises SourceError with one line: not there, broken, quantized already, not a known
    architecture, with code or without safetensors, or changed since its manifest was written."""
    folder = open_folder(path, follow_links=True)
    for finding in folder.findings:
        if finding.severity == "error" and finding.code != "pickle":
            raise SourceError(f"{path}: {finding}")
    _check_config(path, folder.config)
    manifest = None
    if (path / artefact.MANIFEST).exists():
        try:
            manifest, problems = artefact.load(path), artefact.verify(path)
        except ArtefactError as error:
            raise SourceError(str(error)) from None
        if problems:
            raise SourceError(f"{path}: is not what its artefact.json says: {problems[0]}")
    return Source(folder, manifest)


def _check_config(path: Path, config: Mapping[str, Any]) -> None:
    if not config:
        raise SourceError(f"{path}: there is no config.json; a Hugging Face model folder is needed")
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise SourceError(f"{path}: models of type {kind!r} are not supported; supported: {known}")
    if "auto_map" in config:
        raise SourceError(
            f"{path}: config.json has an auto_map; code of a model folder is never run, remove it"
        )
    if "quantization_config" in config:
        raise SourceError(f"{path}: is quantized already; give the BF16 model that it was made from")


def load_model(source: Source, dtype: torch.dtype = torch.bfloat16, device: str = "cpu") -> nn.Module:
    """The text model of a folder, in evaluation mode. Raises SourceError if its weights do not fit its config."""
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
    """transformers draws a progress bar even for a model of one shard."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
