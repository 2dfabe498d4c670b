"""Make the configuration describe the quantization that the weights really have: plain NVFP4.

AWQ's and SVDQuant's variants have parts that a server would ignore, so they are refused. FP8 layers of a mixture are converted to
BF16 and excluded: each E4M3 number times its scale is rounded to BF16 once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from quantizer.layers.fused import fused_groups
from quantizer.nvfp4.blocks import BLOCK
from quantizer.surgery.checkpoint import CONFIG, QUANT, Document, ModelCheckpoint, OutputTensor
from quantizer.surgery.operation import W4A16_SINCE, OperationResult, Server, fine, needed, refused
from quantizer.verify.layout import is_linear
from quantizer.verify.scheme import MIXED, OURS, PRODUCER, UNSERVED, W4A4, W4A16, config_groups, matches

OPERATION: Final = "quantization"
FOLD: Final = "quantize again with `manners quantize ptq`, whose awq folds its scales into the weights"

Found = tuple[OperationResult, ModelCheckpoint]


def quantization(checkpoint: ModelCheckpoint, server: Server) -> Found:
    """Make the two descriptions of the quantization complete, equal, correct, and readable by the server."""
    sections = _sections(checkpoint)
    packed = {
        name.removesuffix(".weight_scale_2") for name in checkpoint.parts if name.endswith(".weight_scale_2")
    }
    if not packed and not any(sections):
        return fine(OPERATION, "not quantized"), checkpoint
    refusal = _refusal_reason(checkpoint, sections, packed)
    if refusal:
        return refused(OPERATION, refusal), checkpoint
    algorithm, problem = _algorithm(sections, packed, server)
    if problem:
        return refused(OPERATION, problem), checkpoint
    fp8_layers = _fp8(checkpoint, packed)
    after = _dequantized(checkpoint, fp8_layers)
    if joined := _not_plain(after, packed):
        return refused(OPERATION, joined[0]), checkpoint
    whole = _with_descriptions(after, sections, algorithm, packed)
    if whole == checkpoint:
        return fine(OPERATION, f"{algorithm}, described identically in both places"), checkpoint
    changes = _changes(checkpoint, whole, sections, fp8_layers)
    return needed(OPERATION, _why(sections, fp8_layers), tuple(changes)), whole


def _sections(checkpoint: ModelCheckpoint) -> tuple[Document, Document]:
    """The quantization as described in hf_quant_config.json and in config.json; empty where it is missing."""
    first = checkpoint.documents.get(QUANT, {}).get("quantization")
    second = checkpoint.config.get("quantization_config")
    return (first if isinstance(first, dict) else {}, second if isinstance(second, dict) else {})


def _named_algorithm(sections: tuple[Document, Document]) -> str | None:
    """The algorithm that is configured; the file that servers read first takes precedence."""
    named = [section.get("quant_algo") for section in sections]
    return next((str(name) for name in named if name), None)


def _layers(sections: tuple[Document, Document]) -> dict[str, str]:
    for section in sections:
        layers = section.get("quantized_layers")
        if isinstance(layers, dict) and layers:
            return {
                name: str(v.get("quant_algo") if isinstance(v, dict) else v) for name, v in layers.items()
            }
    return {}


def _refusal_reason(
    checkpoint: ModelCheckpoint, sections: tuple[Document, Document], packed: set[str]
) -> str | None:
    """What cannot be fixed here, and what to do instead."""
    method = sections[1].get("quant_method", "modelopt")
    if method != "modelopt":
        return f"quantized by {method!a}; only ModelOpt's layout is known here"
    algorithms = {_named_algorithm(sections), *_layers(sections).values()}
    bad = sorted(name for name in UNSERVED if name in algorithms)
    if bad:
        return f"{bad[0]} has scales beside the weights that servers leave out, so renaming it would break the model; {FOLD}"
    scaled = sorted(name for name in checkpoint.parts if name.endswith(".pre_quant_scale"))
    if scaled:
        return f"{scaled[0]}: no server applies it, so the model would be wrong; {FOLD}"
    if not packed:
        return f"quant_algo {_named_algorithm(sections)} is configured, but no weight is packed as NVFP4"
    return None


def _algorithm(
    sections: tuple[Document, Document], packed: set[str], server: Server
) -> tuple[str, str | None]:
    """The algorithm to write, and the reason if there is none that the server can read."""
    named, layers = _named_algorithm(sections), _layers(sections)
    if named is None:
        return W4A4, "weights are packed and neither configuration names a quant_algo; export the model again"
    kinds = {layers.get(name, W4A4) for name in packed} if named == MIXED else {named}
    if len(kinds) != 1 or not kinds <= set(OURS):
        return (
            W4A4,
            f"{', '.join(sorted(kinds))} cannot be described as one algorithm, and {server.name} reads only one",
        )
    if kinds == {W4A16} and server.before(W4A16_SINCE):
        return W4A16, f"{server.name} does not know {W4A16}; it needs input scales, so calibrate for {W4A4}"
    return next(iter(kinds)), None


def _fp8(checkpoint: ModelCheckpoint, packed: set[str]) -> list[str]:
    """Layers with FP8 weights."""
    found = [n.removesuffix(".weight") for n, part in checkpoint.parts.items() if part.dtype == "F8_E4M3"]
    return [name for name in found if f"{name}.weight" in checkpoint.parts and name not in packed]


def _dequantized(checkpoint: ModelCheckpoint, layers: Iterable[str]) -> ModelCheckpoint:
    """The checkpoint with FP8 layers in BF16 and without their scales: one number, or one for each row. `_not_plain`
    reports other forms."""
    gone = {
        f"{name}.{part}" for name in layers for part in ("weight_scale", "input_scale", "weight_scale_inv")
    }
    parts = {name: part for name, part in checkpoint.parts.items() if name not in gone}
    for name in layers:
        weight, held = checkpoint.parts[f"{name}.weight"], checkpoint.parts.get(f"{name}.weight_scale")
        if held and held.shape in ((), (1,), (weight.shape[0],), (weight.shape[0], 1)):
            parts[f"{name}.weight"] = OutputTensor(weight.shard, weight.name, "BF16", weight.shape, held.name)
    return replace(checkpoint, parts=parts)


def _not_plain(checkpoint: ModelCheckpoint, packed: set[str]) -> list[str]:
    """Reasons why the result would not be plain NVFP4."""
    found = [
        f"{name}.weight: FP8 without a scale of its own or of each row; give the BF16 model to `manners quantize ptq`"
        for name in _fp8(checkpoint, packed)
    ]
    weights = [name.removesuffix(".weight") for name in checkpoint.parts if name.endswith(".weight")]
    for group in fused_groups(weights):
        if 0 < len(packed & set(group)) < len(group):
            apart = ", ".join(name.rpartition(".")[2] for name in group if name not in packed)
            found.append(f"{group[0]}: a server joins it with neighbours that are not NVFP4 ({apart})")
    return found


def _with_descriptions(
    checkpoint: ModelCheckpoint, sections: tuple[Document, Document], algorithm: str, packed: set[str]
) -> ModelCheckpoint:
    """The checkpoint with both descriptions, equal and correct. A list of exclusions that is already correct is
    kept."""
    first, second = sections
    lists = [
        section[key] for section, key in ((first, "exclude_modules"), (second, "ignore")) if key in section
    ]
    exclude = next((held for held in lists if _covers_unpacked(held, checkpoint, packed)), None)
    if exclude is None or any(sorted(map(str, held)) != sorted(exclude) for held in lists):
        exclude = sorted(_matrices(checkpoint, packed))
    kv = first.get("kv_cache_quant_algo") or second.get("kv_cache_quant_algo")
    quant = {
        **{key: value for key, value in first.items() if key != "quantized_layers"},
        "quant_algo": algorithm,
        "kv_cache_quant_algo": kv,
        "group_size": BLOCK,
        "exclude_modules": exclude,
    }
    producer = _producer(checkpoint.documents.get(QUANT, {}).get("producer") or second.get("producer"))
    document = {**checkpoint.documents.get(QUANT, {}), "producer": producer, "quantization": quant}
    config = {
        **checkpoint.config,
        "quantization_config": _in_config(second, algorithm, exclude, producer),
    }
    return checkpoint.with_document(QUANT, document).with_document(CONFIG, config)


def _in_config(held: Document, algorithm: str, exclude: list[str], producer: Document) -> dict[str, Any]:
    """`quantization_config` of config.json, as ModelOpt writes it."""
    same = held.get("quant_algo") == algorithm and "config_groups" in held
    return {
        **{key: value for key, value in held.items() if key != "quantized_layers"},
        "quant_algo": algorithm,
        "producer": producer,
        "quant_method": "modelopt",
        "config_groups": held["config_groups"] if same else config_groups(algorithm),
        "ignore": exclude,
    }


def _producer(held: Any) -> dict[str, Any]:
    if isinstance(held, dict) and str(held.get("name", "")).lower() == "modelopt":
        return held
    return dict(PRODUCER)


def _matrices(checkpoint: ModelCheckpoint, packed: Iterable[str]) -> set[str]:
    """Every module with a matrix that is not packed, by its full name."""
    named = [n for n, part in checkpoint.parts.items() if n.endswith(".weight") and len(part.shape) > 1]
    return {name.removesuffix(".weight") for name in named} - set(packed)


def _covers_unpacked(exclude: Any, checkpoint: ModelCheckpoint, packed: Iterable[str]) -> bool:
    """Whether a list excludes every linear layer that is not packed, and no packed one."""
    if not isinstance(exclude, list):
        return False

    def covers(name: str) -> bool:
        return any(matches(str(pattern), name) for pattern in exclude)

    bare = _matrices(checkpoint, packed)
    linear = [name for name in bare if is_linear(name, checkpoint.parts[f"{name}.weight"].shape)]
    return all(covers(name) for name in linear) and not any(covers(name) for name in packed)


def _why(sections: tuple[Document, Document], fp8_layers: Sequence[str]) -> str:
    if fp8_layers:
        return f"called {_named_algorithm(sections)}, and {len(fp8_layers)} layers are FP8, which nothing here reads"
    return "the two descriptions of the quantization are not whole, equal and true"


def _changes(
    before: ModelCheckpoint,
    after: ModelCheckpoint,
    sections: tuple[Document, Document],
    fp8_layers: Sequence[str],
) -> Iterable[str]:
    if fp8_layers:
        yield f"{len(fp8_layers)} FP8 layers become BF16 and are excluded, such as {min(fp8_layers)}"
    now = after.documents[QUANT]["quantization"]
    if _named_algorithm(sections) != now["quant_algo"]:
        yield f"quant_algo: {_named_algorithm(sections)} becomes {now['quant_algo']}"
    for name in (QUANT, CONFIG):
        if before.documents.get(name) != after.documents[name]:
            yield f"{name}: {'completed' if before.documents.get(name) else 'written'}"
