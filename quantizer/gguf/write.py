"""Write a GGUF file from a Hugging Face folder of an architecture in `quantizer.gguf.arch`, with a byte-level BPE tokenizer.

Does what convert_hf_to_gguf.py and llama-quantize do in one step. Tensors are read, packed and written
one at a time and in slices of rows, so memory does not grow with the model.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from torch import Tensor

from quantizer.checkpoint.mtp import inside
from quantizer.checkpoint.source import by_expert
from quantizer.core.errors import SourceError
from quantizer.core.json_file import read_object
from quantizer.gguf import ggml, mix
from quantizer.gguf.arch import Architecture, TensorMapping, add_shape, architecture
from quantizer.gguf.nvfp4 import SUPER, move, pack
from quantizer.nvfp4 import blocks
from quantizer.verify.check import load_layer
from quantizer.verify.folder import Folder, TensorInfo, open_intact_folder
from quantizer.verify.layout import is_quantized, tensors_by_module

NVFP4: Final = "nvfp4"
PLAIN: Final = {"BF16": Type.BF16, "F16": Type.F16, "F32": Type.F32}
"""Types that an NVFP4 file keeps unchanged."""
QWEN2: Final = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN35: Final = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
"""Unlike QWEN2's, it counts combining marks as letters."""
LLAMA3: Final = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
"""Like QWEN2's, with up to three digits together."""
PRE: Final = {
    QWEN2: "qwen2",
    QWEN35: "qwen35",
    LLAMA3: "llama-bpe",
    "Digits ByteLevel": "smollm",
    "ByteLevel": "gpt-2",
}
"""The pre-tokenizer's pattern, or its parts where it has none, and llama.cpp's name for it (transformers, models/qwen2 and qwen3_5,
PRETOKENIZE_REGEX; llama.cpp, src/llama-vocab.cpp)."""


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor of the file. shape: of the numbers, as in numpy; for packed types, in bytes. make: computes the
    numbers, whole or in slices of rows."""

    name: str
    type: Type
    shape: tuple[int, ...]
    make: Callable[[], Iterable[np.ndarray]]


class _Slices:
    """What gguf's writer asks of an array, for one that is made while it is written."""

    def __init__(self, tensor: PlannedTensor, nbytes: int) -> None:
        self.tensor, self.nbytes = tensor, nbytes

    def tofile(self, file: BinaryIO) -> None:
        left = self.nbytes
        for part in self.tensor.make():
            left -= part.nbytes
            part.tofile(file)
        if left:
            raise ValueError(f"{self.tensor.name}: {left} bytes fewer than were planned")


def write_gguf(folder: Path, target: Path, kind: str, name: str) -> dict[str, Type]:
    """Write `folder` as one GGUF file, of a kind of mix.MIXES or NVFP4; each tensor's type. Raises SourceError.

    "nvfp4" needs an NVFP4 folder and is lossless; "f16" also accepts one and dequantizes it; the others need BF16.
    """
    held = by_expert(open_intact_folder(folder))
    config = held.text_config
    arch = architecture(config, held.tensors)
    layers = {module for module, parts in tensors_by_module(held).items() if is_quantized(parts)}
    _check_kind(folder, kind, layers)
    planned = _plan(held, arch, kind, layers)
    writer = gguf.GGUFWriter(target, arch.name)
    writer.add_name(name)
    add_shape(writer, arch)
    writer.add_file_type(mix.MIXES[kind].file if kind in mix.MIXES else gguf.LlamaFileType.MOSTLY_NVFP4)
    if kind != "f16":
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_tokenizer(writer, folder, config)
    _add_sampling(writer, folder)
    _write(writer, planned)
    return {tensor.name: tensor.type for tensor in planned}


def _check_kind(folder: Path, kind: str, layers: set[str]) -> None:
    if kind == NVFP4 and not layers:
        raise SourceError(f"{folder}: holds nothing in NVFP4; `manners quantize ptq` makes such a folder")
    if layers and kind not in (NVFP4, "f16"):
        raise SourceError(f"{folder}: is NVFP4, and {kind} would round it once more; give the BF16 model")


def _write(writer: gguf.GGUFWriter, planned: list[PlannedTensor]) -> None:
    try:
        slices = []
        for tensor in planned:
            dtype = np.dtype(np.float32 if tensor.type == Type.F32 else np.float16)
            dtype = dtype if tensor.type in (Type.F32, Type.F16) else np.dtype(np.uint8)
            size = math.prod(tensor.shape) * dtype.itemsize
            raw = None if dtype != np.uint8 else tensor.type
            writer.add_tensor_info(tensor.name, tensor.shape, dtype, size, raw)
            slices.append(_Slices(tensor, size))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for one in slices:
            writer.write_tensor_data(one)  # type: ignore[arg-type]  # it is asked for its bytes only
    finally:
        writer.close()


# ------------------------------------------------------------------------------------- what is in the file


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, config: dict[str, Any]) -> None:
    """Write the tokens by id, their types, the merges and the chat template."""
    document = read_object(folder / "tokenizer.json")
    added = {item["id"]: item for item in document["added_tokens"]}
    by_id = {i: token for token, i in document["model"]["vocab"].items()}
    by_id |= {i: item["content"] for i, item in added.items()}
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer(document))
    writer.add_token_list([by_id.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types([_token_type(added.get(i), i in by_id) for i in range(size)])
    merges = document["model"]["merges"]
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    ids = {token: i for i, token in by_id.items()}
    begin = _first_token(document)
    for role in ("eos", "pad", "bos"):
        if (number := _special(folder, config, ids, f"{role}_token")) is not None:
            getattr(writer, f"add_{role}_token_id")(number)
    writer.add_add_bos_token(begin is not None)
    if template := _template(folder):
        writer.add_chat_template(template)


def pre_tokenizer(document: dict[str, Any]) -> str:
    """llama.cpp's name of the pre-tokenizer of tokenizer.json. Raises SourceError for an unknown one."""
    kind = document["model"].get("type")
    before = document.get("pre_tokenizer") or {}
    parts = [part for part in before.get("pretokenizers", [before]) if "type" in part]
    split = next((part["pattern"].get("Regex") for part in parts if part["type"] == "Split"), None)
    plain = " ".join(
        part["type"] for part in parts if part.get("use_regex", True) and part.get("individual_digits", True)
    )
    if kind != "BPE" or (found := split or plain) not in PRE:
        raise SourceError(
            "tokenizer.json is not the byte-level BPE of Qwen, Llama 3, SmolLM or GPT-2; use llama.cpp's convert_hf_to_gguf.py"
        )
    return PRE[found]


def _first_token(document: dict[str, Any]) -> str | None:
    """The token that the tokenizer puts before every text, as Llama's does; None if it puts none."""
    post = document.get("post_processor") or {}
    for part in post.get("processors", [post]):
        first: dict[str, Any] = next(iter(part.get("single") or []), {})
        if "SpecialToken" in first:
            token: str = first["SpecialToken"]["id"]
            return token
    return None


def _special(folder: Path, config: dict[str, Any], ids: dict[str, int], role: str) -> int | None:
    """The id of the token with a role: from the tokenizer, else from the model's configuration."""
    path = folder / "tokenizer_config.json"
    token: Any = read_object(path).get(role) if path.exists() else None
    token = token.get("content") if isinstance(token, dict) else token
    configured: Any = config.get(f"{role}_id")
    configured = configured[0] if isinstance(configured, list) and configured else configured
    return ids.get(token, configured) if isinstance(token, str) else configured


def _template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    path = folder / "tokenizer_config.json"
    held = read_object(path).get("chat_template") if path.exists() else None
    return held if isinstance(held, str) else None


def _token_type(added: dict[str, Any] | None, known: bool) -> int:
    """The type of a token. Control tokens are hidden from the text; the tags of thoughts and tool calls must not
    be."""
    if added is None:
        return int(gguf.TokenType.NORMAL if known else gguf.TokenType.UNUSED)
    return int(gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED)


def _add_sampling(writer: gguf.GGUFWriter, folder: Path) -> None:
    """Write the folder's generation defaults, which llama-server uses where a request sets none."""
    path = folder / "generation_config.json"
    defaults = read_object(path) if path.exists() else {}
    if "temperature" in defaults:
        writer.add_sampling_temp(defaults["temperature"])
    if "top_k" in defaults:
        writer.add_sampling_top_k(defaults["top_k"])
    if "top_p" in defaults:
        writer.add_sampling_top_p(defaults["top_p"])


# --------------------------------------------------------------------------------------------- its tensors


def _plan(held: Folder, arch: Architecture, kind: str, layers: set[str]) -> list[PlannedTensor]:
    """Every tensor of the file, in order."""
    tied = "lm_head.weight" not in held.tensors
    found: list[PlannedTensor] = []
    stacks: dict[str, dict[int, str]] = {}
    for name, entry in held.tensors.items():
        module, _, part = name.rpartition(".")
        if part == "weight" and (expert := arch.expert(name)):
            stacks.setdefault(expert[0], {})[expert[1]] = name
            continue
        place = arch.place(name) if module not in layers or part == "weight" else None
        if place is None:
            continue
        if module in layers and kind == NVFP4:
            found += _packed(held, module, place)
        else:
            found.append(_plain(held, name, entry, place, arch, kind, tied, module in layers))
    for stack, parts in stacks.items():
        found.append(_stack(held, stack, [parts[index] for index in sorted(parts)], arch, kind, layers))
    return sorted(found, key=lambda tensor: _file_order(tensor.name))


def _stack(
    held: Folder, name: str, parts: list[str], arch: Architecture, kind: str, layers: set[str]
) -> PlannedTensor:
    """One matrix of all experts of a block: [experts, rows, columns], written expert by expert."""
    if kind == NVFP4:
        raise SourceError("experts in NVFP4 are not written here; take f16, or q4_k_m of the BF16 model")
    if len(parts) != arch.config["num_experts"]:
        raise SourceError(f"{name}: {len(parts)} experts, and config.json says {arch.config['num_experts']}")
    packed = parts[0].removesuffix(".weight") in layers
    rows, columns = held.tensors[parts[0]].shape
    columns = 2 * columns if packed else columns
    chosen = mix.fitting(mix.choose(mix.MIXES[kind], name, 3, arch.blocks, tied=False), columns)
    width = columns if chosen in (Type.F32, Type.F16) else ggml.row_bytes(chosen, columns)
    make = lambda: (_rounded(_numbers(held, part, packed), chosen) for part in parts)  # noqa: E731
    return PlannedTensor(name, chosen, (len(parts), rows, width), make)


def _packed(held: Folder, module: str, place: TensorMapping) -> list[PlannedTensor]:
    """A layer in NVFP4 and its two scales."""
    rows, half = held.tensors[f"{module}.weight"].shape
    if 2 * half % SUPER:
        raise SourceError(
            f"{module}: rows of {2 * half} are not whole blocks of {SUPER}, which GGUF's NVFP4 needs"
        )
    make = lambda: [pack(module, move(module, load_layer(held, module), place.rows, place.columns))]  # noqa: E731
    found = [PlannedTensor(place.name, Type.NVFP4, (rows, 2 * half // SUPER * 36), make)]
    for part, suffix in (("weight_scale_2", "scale"), ("input_scale", "input_scale")):
        if f"{module}.{part}" in held.tensors:
            scale = held.load(f"{module}.{part}").float().reshape(1).numpy()
            name = f"{place.name.removesuffix('weight')}{suffix}"
            found.append(PlannedTensor(name, Type.F32, (1,), partial(list, [scale])))
    return found


def _plain(
    held: Folder,
    name: str,
    entry: TensorInfo,
    place: TensorMapping,
    arch: Architecture,
    kind: str,
    tied: bool,
    layer: bool,
) -> PlannedTensor:
    """A tensor of numbers, rounded to the type of the mix; unchanged in an NVFP4 file."""
    shape = (entry.shape[0], 2 * entry.shape[1]) if layer else entry.shape
    if place.numbers is not None:
        shape = tuple(place.numbers(torch.empty(shape, device="meta")).shape)
    if kind == NVFP4 or inside(name):  # an MTP head stays as it is
        chosen = (
            PLAIN.get(entry.dtype, Type.F32) if len(shape) > 1 and "conv1d" not in place.name else Type.F32
        )
    else:
        chosen = mix.choose(mix.MIXES[kind], place.name, len(shape), arch.blocks, tied, arch.interval)
        chosen = mix.fitting(chosen, shape[-1])
        if place.name.endswith("ffn_gate_inp.weight"):
            chosen = Type.F32  # llama.cpp leaves routers as they are
    as_stored = shape if chosen in (Type.F32, Type.F16) else (*shape[:-1], ggml.row_bytes(chosen, shape[-1]))
    whole = layer or place.rows is not None or place.numbers is not None
    numbers = (lambda: [_numbers(held, name, layer)]) if whole else (lambda: _slices(held, name))
    make = lambda: (_rounded(place.moved(part), chosen) for part in numbers())  # noqa: E731
    return PlannedTensor(place.name, chosen, as_stored, make)


def _slices(held: Folder, name: str) -> Iterator[Tensor]:
    return (part.to(torch.float32) for _, part in held.parts(name))


def _numbers(held: Folder, name: str, layer: bool) -> Tensor:
    if layer:
        return blocks.dequantize(load_layer(held, name.removesuffix(".weight")))
    return held.load(name).to(torch.float32)


def _rounded(weight: Tensor, kind: Type) -> np.ndarray:
    """A float32 tensor as numbers or bytes of a type."""
    if kind == Type.BF16:
        return weight.to(torch.bfloat16).view(torch.uint8).numpy()
    if kind == Type.F32:
        return weight.contiguous().numpy()
    return weight.numpy().astype(np.float16) if kind == Type.F16 else ggml.quantize(weight.numpy(), kind)


def _file_order(name: str) -> tuple[int, str]:
    """The sort key: the embedding first, then blocks by number."""
    parts = name.split(".")
    return (int(parts[1]) + 1 if parts[0] == "blk" else -1, name)
