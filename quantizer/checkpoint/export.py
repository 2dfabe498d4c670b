"""Export a model from memory to a Hugging Face folder: plain NVFP4 that vLLM loads, or BF16 with trained weights.

The source folder is the template: each of its tensors is written under its own name, the weight of a quantized layer as the
parts of `quantizer.nvfp4.blocks`, a changed tensor in the source's type, and everything else byte for byte, vision towers and
MTP layers included. F32 and F16 weights become BF16, because the packed weights were rounded from BF16.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from gates.artefact import artefact
from gates.artefact.artefact import Artefact, Provenance
from quantizer.checkpoint.shards import (
    SHARD_BYTES,
    Group,
    ShardTensor,
    copy_others,
    write_weights,
)
from quantizer.checkpoint.source import FLOATS, Source
from quantizer.core.decoder import layers_name
from quantizer.core.errors import ExportError
from quantizer.core.json_file import write_object
from quantizer.layers.attach import is_matrix
from quantizer.layers.linear import NVFP4Linear, nvfp4_layers
from quantizer.nvfp4 import blocks
from quantizer.verify.folder import TYPES
from quantizer.verify.scheme import PRODUCER, W4A4, W4A16, config_groups

CARRIED: Final = ("mtp", "model.mtp", "model.visual", "visual")
"""Parts of a checkpoint that the text model does not have. Each is excluded from quantization as a whole."""


def write_nvfp4(
    model: nn.Module, source: Source, folder: Path, shard_bytes: int = SHARD_BYTES, *, kv_cache: str = "bf16"
) -> None:
    """Write an NVFP4 folder, except its manifest. kv_cache: what a server keeps there. Raises ExportError."""
    layers = nvfp4_layers(model)
    if not layers:
        raise ExportError("no layer of the model is quantized")
    require_calibrated(layers)
    weight_only = any(layer.weight_only for layer in layers.values())
    write_weights(folder, plan_tensors(model, source, layers, weight_only), shard_bytes)
    write_settings(model, source, folder, layers, kv_cache)


def write_bf16(model: nn.Module, source: Source, folder: Path, shard_bytes: int = SHARD_BYTES) -> None:
    """Write a BF16 folder with the master weights instead of the quantized ones, as input for a GGUF file."""
    write_weights(folder, plan_tensors(model, source, ()), shard_bytes)
    write_object(folder / "config.json", _config(source))
    copy_others(source.path, folder, source.template)


def require_calibrated(layers: Mapping[str, NVFP4Linear], prefix: str = "") -> None:
    """Raises ExportError if the inputs of a layer have no amax. prefix: of the layers' names."""
    for name, layer in layers.items():
        if not (layer.input_amax > 0 or layer.weight_only):
            raise ExportError(f"{prefix}{name}: its input has no amax; calibrate the model first")


def write_settings(
    model: nn.Module, source: Source, folder: Path, layers: Collection[str], kv_cache: str = "bf16"
) -> None:
    """Write everything of an NVFP4 folder but the weights. layers: the names of those in NVFP4."""
    excluded = excluded_modules(model, source, layers)
    weight_only = any(layer.weight_only for layer in nvfp4_layers(model).values())
    ours, servers = settings(excluded, W4A16 if weight_only else W4A4, kv_cache == "fp8")
    write_object(folder / "hf_quant_config.json", ours)
    write_object(folder / "config.json", _config(source) | {"quantization_config": servers})
    copy_others(source.path, folder, source.template)


def seal(
    folder: Path,
    *,
    name: str,
    format: str,
    source: Source,
    created: datetime,
    origin: Provenance,
) -> Artefact:
    """Write the manifest of a folder that was derived from the source, its parent "source" unless `origin` names parents."""
    manifest = source.manifest
    base = origin.base_model or (manifest.provenance.base_model if manifest else None)
    parents = origin.parents or {"source": source.root}
    whole = Provenance(base, parents, origin.recipe, origin.data_digest, origin.tools)
    return artefact.seal(folder, name=name, format=format, created=created, provenance=whole)


def settings(excluded: list[str], algorithm: str, fp8_cache: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """hf_quant_config.json, and `quantization_config` of config.json, as ModelOpt writes them. Without scales of its own an
    FP8 cache is a cast."""
    theirs = {
        "config_groups": config_groups(algorithm),
        "ignore": excluded,
        "quant_algo": algorithm,
        "producer": PRODUCER,
        "quant_method": "modelopt",
    }
    if fp8_cache:
        theirs["kv_cache_scheme"] = {"dynamic": False, "num_bits": 8, "type": "float"}
    ours = {
        "quant_algo": algorithm,
        "kv_cache_quant_algo": "FP8" if fp8_cache else None,
        "group_size": blocks.BLOCK,
        "exclude_modules": excluded,
    }
    return {"producer": PRODUCER, "quantization": ours}, theirs


def excluded_modules(model: nn.Module, source: Source, quantized: Collection[str]) -> list[str]:
    """Every module with a matrix that is not quantized, by its name in the folder; each of CARRIED is one pattern.

    vLLM searches for an entry anywhere in a name, so only whole names are safe. The numbers of the model are not needed.
    """
    kept = [name for name, module in model.named_modules() if name not in quantized and is_matrix(module)]
    named = {_in_folder(source, name) for name in kept}
    for bare, name in source.names.items():
        if len(source.folder.tensors[name].shape) > 1 and _in_memory(model, bare) is None:
            prefix = next((part for part in CARRIED if name.startswith(f"{part}.")), None)
            named.add(f"{prefix}*" if prefix else name.rpartition(".")[0])
    return sorted(named)


def _in_folder(source: Source, module: str) -> str:
    """A module's name in the folder."""
    return source.names.get(f"{module}.weight", f"{module}.weight").removesuffix(".weight")


# ---------------------------------------------------------------------------------------------- weights


def plan_tensors(
    model: nn.Module, source: Source, quantized: Collection[str], weight_only: bool = False
) -> list[Group]:
    """Every tensor of the folder: those outside of the decoder layers, then the decoder layers in order, each as one group.

    The numbers are looked at when a tensor is made; what is on the meta device then is copied. Raises ExportError.
    """
    for name, _ in model.named_parameters():
        if name not in source.names and not name.endswith(".block_amax"):
            raise ExportError(f"{source.path} has no {name}; adapters have to be merged before an export")
    outside: list[Group] = []
    inside = f"{layers_name(model)}."
    layers: dict[int, list[ShardTensor]] = {}
    for bare, name in source.names.items():
        module = bare.removesuffix(".weight")
        if bare != module and module in quantized:
            tensors = _quantized(model, source, module, name)[: 3 if weight_only else 4]
        else:
            tensors = [_plain(model, source, bare, name)]
        if bare.startswith(inside):
            layers.setdefault(int(bare.removeprefix(inside).split(".")[0]), []).extend(tensors)
        else:
            outside.append(tensors)
    return [*outside, *(layers[index] for index in sorted(layers))]


def _quantized(model: nn.Module, source: Source, module: str, name: str) -> list[ShardTensor]:
    """The four tensors of a quantized layer, which is looked at when they are made. The block scales follow from the
    same work as the codes, and are made right after them."""
    (rows, columns), scales = source.folder.tensors[name].shape, []

    def layer() -> NVFP4Linear:
        return model.get_submodule(module)  # type: ignore[return-value]

    def codes() -> list[Tensor]:
        try:
            tensor = layer().quantize()
        except ValueError as error:
            raise ExportError(f"{name}: {error}") from None
        scales.append(tensor.scale)
        return [tensor.packed]

    inputs = f"{name.removesuffix('.weight')}.input_scale"
    return [
        ShardTensor(name, "U8", (rows, columns // 2), codes),
        ShardTensor(f"{name}_scale", "F8_E4M3", (rows, columns // blocks.BLOCK), lambda: [scales.pop()]),
        ShardTensor(f"{name}_scale_2", "F32", (), lambda: [layer().tensor_scale()]),
        ShardTensor(inputs, "F32", (), lambda: [blocks.tensor_scale(layer().input_amax)]),
    ]


def _plain(model: nn.Module, source: Source, bare: str, name: str) -> ShardTensor:
    """The source's own bytes where the model has not changed them, else the model's values in the source's type."""
    entry = source.folder.tensors[name]
    dtype = "BF16" if entry.dtype == source.dtype else entry.dtype

    def make() -> Iterator[Tensor]:
        now = _in_memory(model, bare)
        for rows, before in source.folder.parts(name):
            kept = before.to(TYPES[dtype])
            if now is None or now.is_meta:
                yield kept
                continue
            part = now[rows]
            same = torch.equal(before.to(part.device).to(part.dtype), part)
            yield kept if same else part.to(kept.dtype)

    return ShardTensor(name, dtype, entry.shape, make)


def _in_memory(model: nn.Module, bare: str) -> Tensor | None:
    """The model's parameter or buffer of this name; None if it has none."""
    module, _, part = bare.rpartition(".")
    try:
        tensor = getattr(model.get_submodule(module), part)
    except AttributeError:
        return None
    return tensor.detach() if isinstance(tensor, Tensor) else None


# ---------------------------------------------------------------------------------------- everything else


def _config(source: Source) -> dict[str, Any]:
    """The source's config.json, with BF16 as the type of its weights."""
    config = json.loads(json.dumps(source.config))
    for part in (config, config.get("text_config")):
        for key in ("dtype", "torch_dtype"):
            if isinstance(part, dict) and part.get(key) in FLOATS:
                part[key] = "bfloat16"
    return config
