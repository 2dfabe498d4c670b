"""Write the Hugging Face folder: BF16 safetensors, config, tokenizer and the two chat templates."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen3ForCausalLM

from quantizer.core.json_file import write_object
from quantizer.experiments.nano import template
from quantizer.experiments.nano import tokenizer as bpe
from quantizer.experiments.nano.recipe import ModelShape

# For a voice assistant: some variety in small talk, none in names and numbers.
GENERATION = {"do_sample": True, "temperature": 0.3, "top_k": 20, "top_p": 0.9}


def weights_of(model: Qwen3ForCausalLM) -> dict[str, Tensor]:
    """The weights in BF16 by their Hugging Face names; the tied head equals the embedding and is stored once."""
    state = {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    state.pop("lm_head.weight", None)
    return state


def save_weights(state: dict[str, Tensor], path: Path) -> None:
    """Write one safetensors file, with the metadata that transformers requires."""
    save_file(state, path, metadata={"format": "pt"})


def load_weights(path: Path) -> dict[str, Tensor]:
    return load_file(path)


def config(shape: ModelShape, tokenizer: Tokenizer) -> dict[str, object]:
    """config.json, written explicitly so that every version of transformers reads the same."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.positions,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.norm_eps,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "use_cache": True,
        "use_sliding_window": False,
        "eos_token_id": bpe.token_id(tokenizer, bpe.END),
        "pad_token_id": bpe.token_id(tokenizer, bpe.PAD),
        "torch_dtype": "bfloat16",
    }


def write_folder(folder: Path, state: dict[str, Tensor], shape: ModelShape, tokenizer: Tokenizer) -> None:
    """Write every file of the folder except its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(state, folder / "model.safetensors")
    end, pad = bpe.token_id(tokenizer, bpe.END), bpe.token_id(tokenizer, bpe.PAD)
    generation = {"eos_token_id": [end, pad], "pad_token_id": pad, **GENERATION}
    write_object(folder / "config.json", config(shape, tokenizer))
    write_object(folder / "generation_config.json", generation)
    bpe.save(tokenizer, folder, template.source("hermes"), {"xml": template.source("xml")})
