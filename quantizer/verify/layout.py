"""Check that every part of every layer is present, has the right type and shape, and matches the configuration.

A quantized W4A4 layer `X` is stored as

    X.weight          U8         [..., out, in / 2]
    X.weight_scale    F8_E4M3    [..., out, in / 16]
    X.weight_scale_2  F32        []
    X.input_scale     F32        []      (not for W4A16)

and any other matrix must be excluded. A linear layer is recognized by two dimensions and a name that is not an embedding's.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from quantizer.core.errors import SourceError
from quantizer.layers.fused import fused_groups
from quantizer.nvfp4.blocks import BLOCK
from quantizer.verify.folder import Folder, TensorInfo
from quantizer.verify.report import CheckFinding
from quantizer.verify.scheme import OURS, UNSERVED, W4A16, Scheme, matches

SCALES: Final = ("weight_scale", "weight_scale_2", "input_scale")
DTYPES: Final = {"weight": "U8", "weight_scale": "F8_E4M3", "weight_scale_2": "F32", "input_scale": "F32"}
EMBEDDINGS: Final = ("embed", "wte", "wpe")

Parts = Mapping[str, TensorInfo]


def tensors_by_module(folder: Folder) -> dict[str, dict[str, TensorInfo]]:
    """The tensors grouped by module, then by the last part of their names. Modules with an unreadable part are left
    out."""
    found: dict[str, dict[str, TensorInfo]] = {}
    for name, entry in folder.tensors.items():
        module, _, part = name.rpartition(".")
        found.setdefault(module, {})[part] = entry
    for name in folder.unread:
        found.pop(name.rpartition(".")[0], None)
    return found


def is_quantized(parts: Parts) -> bool:
    """Whether a module is stored in NVFP4, or is meant to be."""
    packed = "weight" in parts and parts["weight"].dtype == "U8"
    return packed or "weight_scale_2" in parts


def is_fp8(parts: Parts) -> bool:
    """Whether a module's weight is stored in FP8."""
    return "weight" in parts and parts["weight"].dtype == "F8_E4M3" and not is_quantized(parts)


def refuse_fp8(folder: Folder) -> None:
    """Raises SourceError if a layer is in FP8, which nothing here computes with."""
    for name, parts in tensors_by_module(folder).items():
        if is_fp8(parts):
            raise SourceError(
                f"{folder.path}: {name} is in FP8; `manners quantize surgery` makes its FP8 layers BF16"
            )


def readable_layers(folder: Folder) -> list[str]:
    """The names of the layers in NVFP4 whose parts are all present and consistent, sorted."""
    return sorted(
        name
        for name, parts in tensors_by_module(folder).items()
        if is_quantized(parts)
        and "weight" in parts
        and not any(_quantized(name, parts, weight_only="input_scale" not in parts))
    )


def check_layout(folder: Folder, scheme: Scheme) -> list[CheckFinding]:
    """All findings that follow from names, types and shapes."""
    found = tensors_by_module(folder)
    findings = [finding for name in sorted(found) for finding in _module(name, found[name], scheme)]
    findings += _fused(found)
    if not folder.unread and not any(f.code == "broken_shard" for f in folder.findings):
        findings += _names(folder, scheme, found)
    return findings


def _module(name: str, parts: Parts, scheme: Scheme) -> Iterator[CheckFinding]:
    algorithm = scheme.of(name)
    if "weight" not in parts:
        yield from (CheckFinding("orphan_scale", f"{name}.{part}") for part in SCALES if part in parts)
    elif algorithm is None and (is_quantized(parts) or is_fp8(parts)):
        yield CheckFinding("excluded_but_quantized", name)
    elif is_quantized(parts) and algorithm in (*OURS, *UNSERVED):
        yield from _quantized(name, parts, weight_only=algorithm == W4A16)
    elif algorithm is not None and algorithm not in (*OURS, *UNSERVED):
        yield CheckFinding("other_format", name, f"{algorithm} is not checked")
    elif algorithm is not None and is_linear(name, parts["weight"].shape):
        yield CheckFinding(
            "not_excluded", name, f"a matrix of {parts['weight'].dtype} that no exclusion covers"
        )
    if "pre_quant_scale" in parts:
        yield CheckFinding("pre_quant_scale", name)


def is_linear(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a module is a linear layer, as far as its name and its weight's shape can tell."""
    leaf = name.rpartition(".")[2]
    return len(shape) == 2 and not any(word in leaf for word in EMBEDDINGS)


def _quantized(name: str, parts: Parts, weight_only: bool) -> Iterator[CheckFinding]:
    needed = {part: dtype for part, dtype in DTYPES.items() if not (weight_only and part == "input_scale")}
    for part in needed:
        if part not in parts:
            yield CheckFinding("missing_scale", name, f"there is no {part}")
    for part, dtype in needed.items():
        if part in parts and parts[part].dtype != dtype:
            yield CheckFinding("dtype", f"{name}.{part}", f"is {parts[part].dtype}, must be {dtype}")
    yield from _shapes(name, parts)


def _shapes(name: str, parts: Parts) -> Iterator[CheckFinding]:
    for part in ("weight_scale_2", "input_scale"):
        if part in parts and parts[part].shape not in ((), (1,)):
            yield CheckFinding("shape", f"{name}.{part}", f"is {list(parts[part].shape)}, must be one number")
    packed = parts["weight"].shape
    if len(packed) < 2 or 0 in packed or packed[-1] * 2 % BLOCK:
        yield CheckFinding(
            "shape", f"{name}.weight", f"{list(packed)} bytes are not rows of whole blocks of {BLOCK}"
        )
    elif "weight_scale" in parts:
        wanted = (*packed[:-1], packed[-1] * 2 // BLOCK)
        if parts["weight_scale"].shape != wanted:
            held = list(parts["weight_scale"].shape)
            yield CheckFinding("shape", f"{name}.weight_scale", f"is {held}, the weight needs {list(wanted)}")


def _fused(found: Mapping[str, Parts]) -> Iterator[CheckFinding]:
    for group in fused_groups(name for name, parts in found.items() if "weight" in parts):
        states = {name: _format(found[name]) for name in group}
        if len(set(states.values())) > 1:
            formats = ", ".join(f"{name.rpartition('.')[2]} {state}" for name, state in states.items())
            yield CheckFinding("fused_mixed", group[0], formats)


def _format(parts: Parts) -> str:
    return "NVFP4" if is_quantized(parts) else "FP8" if is_fp8(parts) else "not quantized"


def _names(folder: Folder, scheme: Scheme, found: Mapping[str, Parts]) -> Iterator[CheckFinding]:
    """Names that are in the configuration but not in the shards, and the reverse."""
    tied = folder.config.get("tie_word_embeddings") or "lm_head" not in found
    for pattern in scheme.exclude:
        known = any(matches(pattern, name) for name in found)
        if not known and not (tied and matches(pattern, "lm_head")):
            yield CheckFinding("unknown_name", pattern, "is excluded, and no module has this name")
    for name in sorted(scheme.layers.keys() - found.keys()):
        yield CheckFinding(
            "unknown_name", name, f"is said to be {scheme.layers[name]}, and no module has this name"
        )
    nested = any(".language_model." in f".{name}." for name in found)
    wrapped = "text_config" in folder.config
    if folder.config and nested != wrapped:
        kind = folder.config.get("model_type")
        detail = f"names {'have' if nested else 'lack'} language_model, config.json is of {kind!a}"
        yield CheckFinding("prefix", "config.json", detail)
