"""A GGUF file from a Hugging Face folder of the Qwen3 architecture with a byte-level BPE.

What convert_hf_to_gguf.py does for Qwen3, for the one family that this project trains; a hundred
lines instead of that program's tree, and with Q4_K_M in the same step. Names of tensors and keys are
those of llama.cpp's `qwen3` (gguf-py/gguf/constants.py, MODEL_ARCH.QWEN3).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file

from quantizer.gguf import ggml, mix

Mix = Callable[[str, int, int, bool], Type]
MIXES: dict[str, tuple[Mix, gguf.LlamaFileType]] = {
    "f16": (mix.f16, gguf.LlamaFileType.MOSTLY_F16),
    "q4_k_m": (mix.q4_k_m, gguf.LlamaFileType.MOSTLY_Q4_K_M),
}


def write_gguf(folder: Path, target: Path, kind: str, name: str) -> dict[str, Type]:
    """Write `folder` (HF, Qwen3) as one GGUF file of a kind in MIXES; returns each tensor's type."""
    config = _read_json(folder / "config.json")
    choose, file_type = MIXES[kind]
    writer = gguf.GGUFWriter(target, "qwen3")
    writer.add_name(name)
    _add_shape(writer, config)
    writer.add_file_type(file_type)
    if kind != "f16":
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_tokenizer(writer, folder, config)
    _add_sampling(writer, folder)
    types = _add_tensors(writer, folder, config, choose)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return types


def _add_shape(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, config: dict[str, Any]) -> None:
    """Tokens by id, their types, the merges, and the chat template."""
    document = _read_json(folder / "tokenizer.json")
    added = {item["id"]: item for item in document["added_tokens"]}
    by_id = {i: token for token, i in document["model"]["vocab"].items()}
    by_id |= {i: item["content"] for i, item in added.items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([by_id[i] for i in range(config["vocab_size"])])
    writer.add_token_types([_token_type(added.get(i)) for i in range(config["vocab_size"])])
    writer.add_token_merges([" ".join(pair) for pair in document["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text(encoding="utf-8"))


def _token_type(added: dict[str, Any] | None) -> int:
    """Control tokens are hidden from the text; the tags of thoughts and calls must not be."""
    if added is None:
        return int(gguf.TokenType.NORMAL)
    return int(gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED)


def _add_sampling(writer: gguf.GGUFWriter, folder: Path) -> None:
    """The folder's generation defaults; llama-server takes them where a request says nothing."""
    path = folder / "generation_config.json"
    defaults = _read_json(path) if path.exists() else {}
    if "temperature" in defaults:
        writer.add_sampling_temp(defaults["temperature"])
    if "top_k" in defaults:
        writer.add_sampling_top_k(defaults["top_k"])
    if "top_p" in defaults:
        writer.add_sampling_top_p(defaults["top_p"])


def _add_tensors(
    writer: gguf.GGUFWriter, folder: Path, config: dict[str, Any], choose: Mix
) -> dict[str, Type]:
    blocks, tied = config["num_hidden_layers"], config["tie_word_embeddings"]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, blocks)
    state = {_gguf_name(names, k): v for k, v in load_file(folder / "model.safetensors").items()}
    types = {}
    for name in sorted(state, key=_file_order):
        weights = state[name].to(torch.float32).numpy()
        types[name] = choose(name, weights.ndim, blocks, tied)
        _add_tensor(writer, name, weights, types[name])
    return types


def _add_tensor(writer: gguf.GGUFWriter, name: str, weights: np.ndarray, kind: Type) -> None:
    if kind == Type.F32:
        writer.add_tensor(name, weights)
    elif kind == Type.F16:
        writer.add_tensor(name, weights.astype(np.float16))
    else:
        writer.add_tensor(name, ggml.quantize(weights, kind), raw_dtype=kind)


def _gguf_name(names: gguf.TensorNameMap, name: str) -> str:
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        raise ValueError(f"{name}: not a tensor of the Qwen3 architecture")
    return found


def _file_order(name: str) -> tuple[int, str]:
    """The embedding first, then blocks by number."""
    parts = name.split(".")
    return (int(parts[1]) + 1 if parts[0] == "blk" else -1, name)


def _read_json(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
