"""The model to be quantized: a Hugging Face folder in BF16, F16 or F32, checked before it is loaded.

No code of the folder is run: folders with code (`auto_map`) are rejected and pickles are never opened.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from gates.artefact import artefact
from gates.artefact.artefact import MANIFEST, Artefact, FileEntry, root_digest
from gates.contracts.errors import ManifestError
from quantizer.core.errors import SourceError, first_line
from quantizer.core.expert_names import separate_tensor, unwrapped_name
from quantizer.layers.experts import separate_experts
from quantizer.verify.folder import Folder, TensorInfo, open_intact_folder

FLOATS: Final = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
READERS: Final = 4
"""Threads that read tensors: one alone is slower than the disk's cache."""


@dataclass(frozen=True)
class Source:
    """A folder that can be quantized. manifest: its artefact.json, if it has one. template: a chat template's text, in place
    of the folder's own."""

    folder: Folder
    manifest: Artefact | None
    template: str | None = None

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def config(self) -> Mapping[str, Any]:
        return self.folder.config

    @property
    def dtype(self) -> str:
        """The type of most weights, in the notation of safetensors."""
        for config in (self.config, self.folder.text_config):
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
    digests = artefact.hash_files(kept.values())
    return root_digest(FileEntry(n.as_posix(), *one) for n, one in zip(kept, digests, strict=True))


def open_source(path: Path, template: str | None = None) -> Source:
    """Open and check a folder. Raises SourceError with one line."""
    folder = open_intact_folder(path)
    require_config(path, folder.config)
    refuse_code(path, "config.json", folder.config)
    if "quantization_config" in folder.config:
        raise SourceError(f"{path}: is quantized already; give the BF16 model that it was made from")
    return Source(by_expert(folder), read_manifest(path), template)


def by_expert(folder: Folder) -> Folder:
    """The folder with each stacked tensor of experts as one tensor for each of them; others as they are."""
    tensors: dict[str, TensorInfo] = {}
    for name, entry in folder.tensors.items():
        parts = (
            {}
            if f"{name}_bias" in folder.tensors
            else {  # GPT-OSS's stay stacked
                part: TensorInfo(
                    entry.shard, entry.dtype, (rows.stop - rows.start, entry.shape[2]), (name, index, rows)
                )
                for part, index, rows in separate_tensor(name, entry.shape)
            }
        )
        tensors |= parts or {name: entry}
    return replace(folder, tensors=tensors)


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
    """Raises SourceError if the folder has no config.json, or that names no type of model."""
    if not config:
        raise SourceError(f"{path}: there is no config.json; a Hugging Face model folder is needed")
    if not isinstance(config.get("model_type"), str):
        raise SourceError(f"{path}: config.json names no model_type")


def refuse_code(path: Path, name: str, document: Mapping[str, Any]) -> None:
    """Raises SourceError if a JSON document of the folder refers to code of its own."""
    if "auto_map" in document:
        raise SourceError(f"{path}: {name} has an auto_map; code of a model folder is never run, remove it")


def load_model(source: Source, dtype: torch.dtype = torch.bfloat16, device: str = "cpu") -> nn.Module:
    """Load the text model of a folder, in evaluation mode, each tensor straight to the device. Raises SourceError."""
    model = skeleton(source, dtype)
    fill(model, source.folder, source.names, device)
    return finish(model, device)


def skeleton(source: Source, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """The text model of a folder with its parameters on the meta device. Raises SourceError if folder and configuration differ."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(source.path, local_files_only=True)
        model = from_config(config, dtype)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise SourceError(f"{source.path}: cannot be loaded ({first_line(error)})") from error
    wanted = dict(model.named_parameters())
    missing = sorted(wanted.keys() - source.names.keys())
    if missing:
        raise SourceError(f"{source.path}: lacks {len(missing)} of the model's weights, first {missing[0]}")
    for name, parameter in wanted.items():
        held = source.folder.tensors[source.names[name]].shape
        if held != tuple(parameter.shape):
            detail = f"{name} is {list(held)}, config.json says {list(parameter.shape)}"
            raise SourceError(f"{source.path}: cannot be loaded ({detail})")
    return model


def from_config(config: Any, dtype: torch.dtype) -> nn.Module:
    """The text model of transformers' configuration, in evaluation mode, with its parameters on the meta device."""
    from transformers import AutoModelForCausalLM

    config = getattr(config, "text_config", None) or config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with _parameters_on_meta():
        model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=dtype)
    separate_experts(model)
    return model.eval()


def fill(
    module: nn.Module,
    folder: Folder,
    names: Mapping[str, str],
    device: str | torch.device,
    prefix: str = "",
    leave: tuple[str, ...] = (),
) -> None:
    """Read the parameters of a module that are on the meta device, and put its buffers on the device, too.

    `names`: a parameter's name in the model to its name in the folder; `prefix`: the module's name in the model, with a dot.
    `leave`: beginnings of the names of parameters that stay.
    """
    empty = [n for n, parameter in module.named_parameters() if parameter.is_meta and not n.startswith(leave)]

    def read(name: str) -> Tensor:
        return folder.copy(names[prefix + name], device, module.get_parameter(name).dtype)

    with ThreadPoolExecutor(READERS) as pool:
        for name, tensor in zip(empty, pool.map(read, empty), strict=True):
            before, (parent, _, leaf) = module.get_parameter(name), name.rpartition(".")
            place = module.get_submodule(parent)
            place.register_parameter(leaf, nn.Parameter(tensor, before.requires_grad))
    for part in module.modules():
        for leaf, buffer in part.named_buffers(recurse=False):
            setattr(part, leaf, buffer.to(device))


def finish(model: nn.Module, device: str | torch.device) -> nn.Module:
    """Tie what the configuration ties, once the parameters are there."""
    model.tie_weights()  # type: ignore[operator]  # transformers'
    return model.to(device)


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Within a `with` block, every parameter of a new module is on the meta device and its initialization costs
    nothing. Buffers (of rotary embeddings) get their numbers as always."""
    own = nn.Module.register_parameter

    def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:
            param = nn.Parameter(param.to("meta"), param.requires_grad)
        own(self, name, param)

    nn.Module.register_parameter = register  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = own  # type: ignore[method-assign]
