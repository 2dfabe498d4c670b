"""The mapping from Hugging Face tensors to GGUF tensors, and the conversion of their values, by architecture.

`gguf` knows every architecture's names. Llama and its like (PAIRED) need another order of rows in q_proj and k_proj: transformers
rotates a head's first half with its second, ggml neighbours.
Qwen3-MoE's experts are one tensor for a layer, [experts, rows, columns]. Qwen3.5 (llama.cpp's `qwen35`) needs

* norms with the 1 that its RMSNorm adds: 1 + w, except in the gated norm of the DeltaNet;
* -exp(A_log) for A_log, and the convolution without its dimension of size one;
* the MTP head as one more block, with its own parts under `nextn` (`quantizer.checkpoint.mtp`);
* another order of value heads: k0v0 k0v1 k1v0 k1v1 in transformers, k0v0 k1v0 k0v1 k1v1 in ggml. This permutes rows of
  in_proj_qkv (its last part), in_proj_z, in_proj_a, in_proj_b, A_log, dt_bias and conv1d, and columns of out_proj.

Permutations move whole heads, so packed NVFP4 can be moved in the same way. Sources: llama.cpp, conversion/qwen.py, llama.py,
base.py, src/models/qwen35.cpp; gguf-py/gguf/constants.py.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import gguf
import torch
from torch import Tensor

from quantizer.checkpoint.mtp import inside, whole_head
from quantizer.core.errors import SourceError
from quantizer.core.expert_names import expert_of, unwrapped_name

Config = Mapping[str, Any]
Numbers = Callable[[Tensor], Tensor]
LEFT: Final = ("model.visual.", "visual.")
"""Parts that a text model in a GGUF file does not need."""
WRITTEN: Final = {
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "qwen3_5_text": gguf.MODEL_ARCH.QWEN35,
}
"""`model_type` to llama.cpp's architecture."""
PAIRED: Final = ("llama", "granite", "smollm3")
HEADS: Final = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
"""Where PAIRED's rows are in another order, and how many heads they are."""
SCALES: Final = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}
"""Granite's factors, and their keys in the file."""
NEXTN: Final = {
    "fc.weight": "eh_proj.weight",
    "pre_fc_norm_embedding.weight": "enorm.weight",
    "pre_fc_norm_hidden.weight": "hnorm.weight",
    "norm.weight": "shared_head_norm.weight",
}
"""The MTP head's own parts, and their names behind `blk.N.nextn.`."""


@dataclass(frozen=True)
class TensorMapping:
    """Where a tensor goes. rows, columns: the old index of each new one; None: unchanged. numbers: a function that
    is applied to the values in float32 first."""

    name: str
    rows: Tensor | None = None
    columns: Tensor | None = None
    numbers: Numbers | None = None

    def moved(self, weight: Tensor) -> Tensor:
        """A float32 tensor as the file needs it."""
        weight = self.numbers(weight.float()) if self.numbers else weight
        weight = weight if self.rows is None else weight[self.rows]
        return weight if self.columns is None else weight[:, self.columns]


@dataclass(frozen=True)
class Architecture:
    """name: as in llama.cpp. interval: one of so many blocks has attention, the others a DeltaNet; 1 if all have
    attention. nextn: 1 if the file has an MTP head, in the block behind the last."""

    name: str
    config: Config
    names: gguf.TensorNameMap
    interval: int = 1
    nextn: int = 0

    @property
    def blocks(self) -> int:
        return int(self.config["num_hidden_layers"])

    def place(self, name: str) -> TensorMapping | None:
        """The mapping of a tensor; None if the file does not need it. Raises SourceError for a tensor that is
        unknown."""
        if name.startswith(LEFT):
            return None
        plain = unwrapped_name(name)
        if part := inside(name):
            if not self.nextn:
                return None
            if part in NEXTN:
                numbers = _plus_one if "norm" in part else None
                return TensorMapping(f"blk.{self.blocks}.nextn.{NEXTN[part]}", numbers=numbers)
            plain = part.replace("layers.0.", f"model.layers.{self.blocks}.", 1)
        if self.name == "qwen35" and plain.endswith(".dt_bias"):
            plain = f"{plain.removesuffix('dt_bias')}dt_proj.bias"
        found = self.names.get_name(plain, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise SourceError(f"{name}: not a tensor of the architecture {self.name}")
        if self.name == "qwen35":
            return _qwen35(plain, found, self.config)
        part = plain.rpartition(".self_attn.")[2].partition(".")[0]
        heads = HEADS.get(part) if self.name in PAIRED else None
        rows = rotary_order(self.config[heads], self.config["head_dim"]) if heads else None
        return TensorMapping(found, rows=rows)

    def expert(self, name: str) -> tuple[str, int] | None:
        """The tensor of the file that an expert's matrix is a part of, and the expert's index; None for others."""
        found = expert_of(name.removesuffix(".weight"))
        if found is None:
            return None
        layer, index, part = found
        stacked = self.names.get_name(f"{layer}.{part}.weight", try_suffixes=(".weight",))
        if stacked is None:
            raise SourceError(f"{name}: not a tensor of the architecture {self.name}")
        return stacked, index


def architecture(config: Config, tensors: Iterable[str] = ()) -> Architecture:
    """The architecture of a text model's configuration. tensors: the folder's, which say whether there is an MTP head.
    Raises SourceError if our writer does not support it."""
    kind = config.get("model_type")
    if kind not in WRITTEN:
        raise SourceError(
            f"models of type {kind!r} are not written here; use llama.cpp's convert_hf_to_gguf.py"
        )
    if _rope(config).get("rope_type", "default") != "default":
        raise SourceError(
            f"rope of type {_rope(config)['rope_type']!r} is not written here; use llama.cpp's convert_hf_to_gguf.py"
        )
    _require_sizes(config, _SIZES)
    width, heads = config["hidden_size"], config["num_attention_heads"]
    usual = {
        "num_experts": config.get("num_local_experts"),
        "head_dim": width // heads,
        "num_key_value_heads": heads,
    }
    config = usual | {name: value for name, value in config.items() if value is not None}
    _require_sizes(config, ("head_dim", "num_key_value_heads", *_MORE_SIZES.get(kind, ())))
    if kind == "smollm3" and config.get("no_rope_layer_interval", 4) != 4:
        raise SourceError(
            "llama.cpp's smollm3 has one layer in 4 without rope; this model has another pattern"
        )
    if any(config.get(key) for key in _UNREAD):
        raise SourceError(
            f"config.json: llama.cpp does not read {' and '.join(k for k in _UNREAD if config.get(k))} here"
        )
    blocks = int(config["num_hidden_layers"])
    if kind != "qwen3_5_text":
        if kind == "qwen3_moe":
            _require_plain_experts(config)
        known = WRITTEN[kind]
        return Architecture(gguf.MODEL_ARCH_NAMES[known], config, gguf.get_tensor_name_map(known, blocks))
    nextn = int(whole_head(tensors))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN35, blocks + nextn)
    return Architecture("qwen35", config, names, _interval(config), nextn)


_SIZES: Final = (
    "num_hidden_layers", "max_position_embeddings", "hidden_size", "intermediate_size", "num_attention_heads",
    "vocab_size", "rms_norm_eps",
)  # fmt: skip
_UNREAD: Final = ("use_sliding_window", "mlp_bias")
_DELTANET_SIZES: Final = (
    "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
    "linear_value_head_dim",
)  # fmt: skip
_MORE_SIZES: Final = {
    "qwen3_5_text": _DELTANET_SIZES,
    "qwen3_moe": ("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
}


def _require_sizes(config: Config, names: Iterable[str]) -> None:
    wrong = [name for name in names if type(config.get(name)) not in (int, float) or not config[name] > 0]
    if wrong:
        raise SourceError(f"config.json: {', '.join(wrong)} must be there, and a number above 0")


def _require_plain_experts(config: Config) -> None:
    """llama.cpp's qwen3moe has experts in every block, and their weights add up to one. With eight of them llama-quantize
    has other mixes."""
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        raise SourceError(
            "qwen3moe has experts in every layer; this model has an MLP in some: use llama.cpp's convert_hf_to_gguf.py"
        )
    if not config.get("norm_topk_prob"):
        raise SourceError("qwen3moe normalizes the experts' weights, and norm_topk_prob is not true here")
    if config["num_experts"] == 8:
        raise SourceError(
            "llama.cpp mixes types otherwise for eight experts: use its convert_hf_to_gguf.py and llama-quantize"
        )


def _interval(config: Config) -> int:
    """The number of blocks of which one has attention; llama.cpp supports no other pattern."""
    _require_sizes({"full_attention_interval": 4, **config}, ["full_attention_interval"])
    interval = int(config.get("full_attention_interval", 4))
    wanted = [
        "full_attention" if (i + 1) % interval == 0 else "linear_attention"
        for i in range(config["num_hidden_layers"])
    ]
    if config.get("layer_types", wanted) != wanted:
        raise SourceError(
            f"layer_types is not one full_attention in {interval}, which is all that qwen35 knows"
        )
    if config["linear_key_head_dim"] != config["linear_value_head_dim"]:
        raise SourceError("qwen35 wants linear_key_head_dim and linear_value_head_dim to be the same")
    return interval


def add_shape(writer: gguf.GGUFWriter, arch: Architecture) -> None:
    """Write the metadata keys with the dimensions of the model."""
    config, rope = arch.config, _rope(arch.config)
    writer.add_block_count(arch.blocks + arch.nextn)
    if arch.nextn:
        writer.add_nextn_predict_layers(arch.nextn)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    if arch.name in (*PAIRED, "phi3"):
        writer.add_rope_dimension_count(int(config["head_dim"] * rope.get("partial_rotary_factor", 1.0)))
    for name, key in SCALES.items() if arch.name == "granite" else ():
        writer.add_float32(f"{arch.name}.{key}", config[name])
    if arch.name in ("phi3",) and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if arch.name == "qwen3moe":
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if arch.name == "qwen35":
        _add_deltanet(writer, arch, rope)


def _add_deltanet(writer: gguf.GGUFWriter, arch: Architecture, rope: Config) -> None:
    config = arch.config
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    writer.add_full_attention_interval(arch.interval)
    share = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 0.25))
    writer.add_rope_dimension_count(int(config["head_dim"] * share))
    sections = [*rope.get("mrope_section", (11, 11, 10)), 0, 0, 0, 0]
    writer.add_rope_dimension_sections(sections[:4])


def _rope(config: Config) -> dict[str, Any]:
    """The settings of the rotary embedding: transformers 5 keeps them in rope_parameters, version 4 at the top
    level."""
    scaling = config.get("rope_scaling") or {}
    scaling = {"rope_type": scaling["type"], **scaling} if "type" in scaling else scaling
    top = {"rope_theta": config["rope_theta"]} if "rope_theta" in config else {}
    return {"rope_theta": 10000.0, **top, **scaling, **(config.get("rope_parameters") or {})}


def _qwen35(plain: str, name: str, config: Config) -> TensorMapping:
    if ".linear_attn." not in plain:
        return TensorMapping(name, numbers=_plus_one if plain.endswith("norm.weight") else None)
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    width = config["linear_value_head_dim"]
    heads, single = value_order(keys, values, width), value_order(keys, values, 1)
    before = 2 * keys * config["linear_key_head_dim"]
    fused = torch.cat([torch.arange(before), before + heads])
    part = plain.rpartition("linear_attn.")[2]
    return {
        "in_proj_qkv.weight": TensorMapping(name, rows=fused),
        "in_proj_z.weight": TensorMapping(name, rows=heads),
        "in_proj_a.weight": TensorMapping(name, rows=single),
        "in_proj_b.weight": TensorMapping(name, rows=single),
        "dt_proj.bias": TensorMapping(name, rows=single),
        "A_log": TensorMapping(name, rows=single, numbers=_decay),
        "conv1d.weight": TensorMapping(name, rows=fused, numbers=_squeeze),
        "out_proj.weight": TensorMapping(name, columns=heads),
        "norm.weight": TensorMapping(name),
    }[part]


def value_order(keys: int, values: int, width: int) -> Tensor:
    """The old index of each new row: int64 [values * width]; from grouped by key head to interleaved."""
    return torch.arange(values * width).reshape(keys, values // keys, width).transpose(0, 1).reshape(-1)


def rotary_order(heads: int, width: int) -> Tensor:
    """The old index of each new row of Llama's q_proj or k_proj, int64 [heads * width]: from the halves of a head to pairs
    of neighbours."""
    return torch.arange(heads * width).reshape(heads, 2, width // 2).transpose(1, 2).reshape(-1)


def _plus_one(weight: Tensor) -> Tensor:
    return weight + 1


def _decay(weight: Tensor) -> Tensor:
    return -torch.exp(weight)


def _squeeze(weight: Tensor) -> Tensor:
    return weight.squeeze(1)
