"""Folders that can become GGUF files: random models with a tokenizer of 600 tokens, in BF16 and in NVFP4."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from quantizer.gguf.write import LLAMA3, QWEN2, QWEN35
from quantizer.layers.fused import fused_groups
from quantizer.nano import conversations
from quantizer.nvfp4 import blocks
from tests.quantizer import tiny

VOCABULARY = 608
SIZE = tiny.SIZE | {"vocab_size": VOCABULARY, "max_position_embeddings": 512}
DELTANET = tiny.DELTANET | {"linear_conv_kernel_dim": 4}
OTHERS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {},
    "granite": {
        "logits_scaling": 4.0,
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.2,
    },
    "smollm3": {"num_hidden_layers": 4},
    "olmo2": {},
    "phi3": {},
    "qwen3_moe": tiny.EXPERTS,
}


def qwen3() -> Any:
    """Two blocks."""
    return _random(Qwen3ForCausalLM, Qwen3Config(num_hidden_layers=2, **SIZE))


def other(kind: str) -> Any:
    """Two blocks of another architecture, by its `model_type`."""
    more: dict[str, Any] = {"num_hidden_layers": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 0}
    config = AutoConfig.for_model(kind, **SIZE | more | OTHERS[kind])
    return _random(MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], config)


def qwen3_moe() -> Any:
    """Four experts in each block, of which two see a token."""
    return other("qwen3_moe")


def qwen3_5() -> Any:
    """Three DeltaNet blocks and one of attention, twice as many value heads as key heads."""
    return _random(Qwen3_5ForCausalLM, Qwen3_5TextConfig(num_hidden_layers=4, **SIZE, **DELTANET))


def _random(kind: Any, config: Any) -> Any:
    """The same at every call, and nothing as it is initialized, so that every tensor counts: norms are not flat, decays
    not alike."""
    generator = torch.Generator().manual_seed(7)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = kind(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            wide = 0.3 if weight.ndim == 1 else 0.15
            if name.endswith(
                ("A_log", "dt_bias")
            ):  # slow decays of unlike heads: fast ones forget what came before
                weight.fill_(-2.0)
                wide = 1.5
            weight.add_(torch.randn(weight.shape, generator=generator) * wide)
        model.lm_head.weight[0] = 0  # the end of a turn is never the likeliest token
    return model.to(torch.bfloat16).eval()


@cache
def tokenizer(regex: str) -> str:
    """tokenizer.json of a byte-level BPE of 600 tokens that cuts by a pattern."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(regex), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(conversations.lines(64), trainer)
    text: str = made.to_str()
    return text


def save(model: Any, folder: Path) -> Path:
    """A folder in BF16."""
    model.save_pretrained(folder)
    regex = {"qwen3_5_text": QWEN35, "llama": LLAMA3}.get(model.config.model_type, QWEN2)
    (folder / "tokenizer.json").write_text(tokenizer(regex), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    return folder


def quantized(source: Path, folder: Path) -> Path:
    """The same in NVFP4: every projection but the DeltaNet's a and b, with scales tied as servers join layers."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("artefact.json"))
    tensors = load_file(source / "model.safetensors")
    bare = [name.removesuffix(".weight") for name in tensors if "_proj" in name and "in_proj_a" not in name]
    layers = [name for name in bare if "in_proj_b" not in name]
    joined = {name: group for group in fused_groups(layers) for name in group}
    held = {name: tensor for name, tensor in tensors.items() if name.removesuffix(".weight") not in layers}
    for name in layers:
        largest = torch.stack([tensors[f"{n}.weight"].abs().amax() for n in joined.get(name, (name,))]).amax()
        packed, scale, second = blocks.quantize(tensors[f"{name}.weight"], blocks.tensor_scale(largest))
        held |= {f"{name}.weight": packed, f"{name}.weight_scale": scale, f"{name}.weight_scale_2": second}
        held[f"{name}.input_scale"] = torch.tensor(0.005)
    save_file(held, folder / "model.safetensors")
    exclude = [n.removesuffix(".weight") for n, t in held.items() if n.removesuffix(".weight") not in layers]
    exclude = [name for name in exclude if f"{name}.weight" in held and held[f"{name}.weight"].ndim > 1]
    quant = {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None}
    document = {"producer": {"name": "modelopt"}, "quantization": {**quant, "exclude_modules": exclude}}
    (folder / "hf_quant_config.json").write_text(json.dumps(document))
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_algo": "NVFP4", "quant_method": "modelopt", "ignore": exclude}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
