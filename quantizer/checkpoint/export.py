"""Export a model from memory to a Hugging Face folder: plain NVFP4 that vLLM loads, or BF16 with trained weights.

The source folder is the template. Each of its tensors is written under its own name: the weight of a quantized
layer as the four parts of `quantizer.nvfp4.blocks`, a changed tensor in the source's type, and everything else byte
for byte, including vision towers and MTP layers that were never loaded. Tokenizer, chat templates and generation
settings are copied; code and pickles are not.

One thing differs from the source: F32 and F16 weights are written in BF16, because the packed weights were rounded
from BF16 and servers compute in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from gates.artefact import artefact
from gates.artefact.manifest import Artefact, Provenance
from quantizer.checkpoint.shards import SHARD_BYTES, copy_others, write_json, write_weights
from quantizer.checkpoint.source import FLOATS, Source
from quantizer.core.errors import ExportError
from quantizer.layers.linear import SERVED_DTYPE, NVFP4Linear, nvfp4_layers
from quantizer.nvfp4 import blocks
from quantizer.verify.scheme import PRODUCER, W4A4, config_groups

CARRIED: Final = ("mtp", "model.mtp", "model.visual", "visual")
"""Parts of a checkpoint that the text model does not have. Each is excluded from quantization as a whole."""


def write_nvfp4(model: nn.Module, source: Source, folder: Path, shard_bytes: int = SHARD_BYTES) -> None:
    """Write an NVFP4 folder, except its manifest. folder: an empty folder.

    Raises ExportError if no layer of the model is quantized, an input has no amax, a weight is not finite, or the
    source lacks a parameter.
    """
    layers = nvfp4_layers(model)
    if not layers:
        raise ExportError("no layer of the model is quantized")
    for name, layer in layers.items():
        if not layer.input_amax > 0:
            raise ExportError(f"{name}: its input has no amax; calibrate the model first")
    _check_names(model, source)
    write_weights(folder, _tensors(model, source, quantized=True), shard_bytes)
    write_json(folder / "hf_quant_config.json", quant_config(model, source))
    write_json(folder / "config.json", _config(source) | {"quantization_config": model_config(model, source)})
    copy_others(source.path, folder)


def write_bf16(model: nn.Module, source: Source, folder: Path, shard_bytes: int = SHARD_BYTES) -> None:
    """Write a BF16 folder with the master weights instead of the quantized ones, as input for a GGUF file."""
    _check_names(model, source)
    write_weights(folder, _tensors(model, source, quantized=False), shard_bytes)
    write_json(folder / "config.json", _config(source))
    copy_others(source.path, folder)


def seal(
    folder: Path, *, name: str, format: str, source: Source, created: datetime, origin: Provenance
) -> Artefact:
    """Write the manifest of a folder that was derived from the source.

    The source's root digest becomes the parent "source" unless `origin` names parents; its base model is inherited.
    """
    manifest = source.manifest
    base = origin.base_model or (manifest.provenance.base_model if manifest else None)
    parents = origin.parents or {"source": source.root}
    whole = Provenance(base, parents, origin.recipe, origin.data_digest, origin.tools)
    return artefact.seal(folder, name=name, format=format, created=created, provenance=whole)


def quant_config(model: nn.Module, source: Source) -> dict[str, Any]:
    """The content of hf_quant_config.json, as ModelOpt writes it."""
    return {
        "producer": PRODUCER,
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": None,
            "group_size": blocks.BLOCK,
            "exclude_modules": excluded_modules(model, source),
        },
    }


def model_config(model: nn.Module, source: Source) -> dict[str, Any]:
    """`quantization_config` of config.json, as ModelOpt writes it."""
    return {
        "config_groups": config_groups(W4A4),
        "ignore": excluded_modules(model, source),
        "quant_algo": "NVFP4",
        "producer": PRODUCER,
        "quant_method": "modelopt",
    }


def excluded_modules(model: nn.Module, source: Source) -> list[str]:
    """Every module with a matrix that is not quantized, by its name in the folder.

    Each of the CARRIED parts is one pattern. vLLM searches for an entry anywhere in a name, so only whole names are
    safe.
    """
    kept = [name for name, module in model.named_modules() if _matrix(module)]
    named = {source.names.get(f"{name}.weight", f"{name}.weight").removesuffix(".weight") for name in kept}
    for bare, name in source.names.items():
        if len(source.folder.tensors[name].shape) > 1 and _in_memory(model, bare) is None:
            prefix = next((part for part in CARRIED if name.startswith(f"{part}.")), None)
            named.add(f"{prefix}*" if prefix else name.rpartition(".")[0])
    return sorted(named)


def _matrix(module: nn.Module) -> bool:
    return not isinstance(module, NVFP4Linear) and getattr(getattr(module, "weight", None), "ndim", 0) > 1


# ---------------------------------------------------------------------------------------------- weights


def _check_names(model: nn.Module, source: Source) -> None:
    """Raises ExportError for a parameter that does not exist in the source."""
    for name, _ in model.named_parameters():
        if name not in source.names and not name.endswith(".block_amax"):
            raise ExportError(f"{source.path} has no {name}; adapters have to be merged before an export")


def _tensors(model: nn.Module, source: Source, quantized: bool) -> Iterator[dict[str, Tensor]]:
    """The tensors to write for each tensor of the source, by name."""
    layers = nvfp4_layers(model) if quantized else {}
    packed = {f"{name}.weight": layer for name, layer in layers.items()}
    for bare, name in source.names.items():
        if layer := packed.get(bare):
            yield _packed(name, layer)
        else:
            yield {name: _plain(source, name, _in_memory(model, bare))}


def _packed(name: str, layer: NVFP4Linear) -> dict[str, Tensor]:
    try:
        tensor = layer.quantize()
    except ValueError as error:
        raise ExportError(f"{name}: {error}") from None
    parts = {
        name: tensor.packed,
        f"{name}_scale": tensor.scale,
        f"{name}_scale_2": tensor.tensor_scale,
        f"{name.removesuffix('.weight')}.input_scale": blocks.tensor_scale(layer.input_amax),
    }
    return {key: part.detach().cpu().contiguous().clone() for key, part in parts.items()}


def _plain(source: Source, name: str, now: Tensor | None) -> Tensor:
    """The source's own bytes if the model has not changed them, else the model's values in the source's type."""
    before = source.folder.load(name)
    kept = SERVED_DTYPE if source.folder.tensors[name].dtype == source.dtype else before.dtype
    if now is None or torch.equal(before.to(now.dtype), now):
        return before.to(kept)
    return now.to(kept).contiguous().clone()


def _in_memory(model: nn.Module, bare: str) -> Tensor | None:
    """The model's parameter or buffer of this name, on the CPU; None if it has none."""
    module, _, part = bare.rpartition(".")
    try:
        tensor = getattr(model.get_submodule(module), part)
    except AttributeError:
        return None
    return tensor.detach().cpu() if isinstance(tensor, Tensor) else None


# ---------------------------------------------------------------------------------------- everything else


def _config(source: Source) -> dict[str, Any]:
    """The source's config.json, with BF16 as the type of its weights."""
    config = json.loads(json.dumps(source.config))
    for part in (config, config.get("text_config")):
        for key in ("dtype", "torch_dtype"):
            if isinstance(part, dict) and part.get(key) in FLOATS:
                part[key] = "bfloat16"
    return config
