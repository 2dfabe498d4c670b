"""Models of a few thousand weights, random, in BF16: the shapes of the real ones."""

from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SIZE: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}

# The default sections of the rotary embedding add up to 32 and want heads of 64 or more.
ROPE = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 1.0,
    "mrope_section": [3, 3, 2],
    "mrope_interleaved": True,
}
DELTANET: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "rope_parameters": ROPE,
}


def qwen3(seed: int = 0, **more: Any) -> Any:
    """Two layers of Qwen3. more: for the config."""
    return _build(Qwen3ForCausalLM, Qwen3Config(num_hidden_layers=2, **SIZE | more), seed)


def llama(seed: int = 0, **more: Any) -> Any:
    """Two layers of Llama."""
    return _build(LlamaForCausalLM, LlamaConfig(num_hidden_layers=2, **SIZE | more), seed)


def gemma3(seed: int = 0, **more: Any) -> Any:
    """One layer of Gemma 3 that looks back for 8 tokens, and one that looks back for all."""
    kinds: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
    return _build(Gemma3ForCausalLM, Gemma3TextConfig(num_hidden_layers=2, **SIZE | kinds | more), seed)


def qwen3_moe(seed: int = 0, **more: Any) -> Any:
    """Two layers of Qwen3-MoE: four experts, of which two see a token."""
    experts: dict[str, Any] = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    }
    return _build(Qwen3MoeForCausalLM, Qwen3MoeConfig(num_hidden_layers=2, **SIZE | experts | more), seed)


def qwen3_5(seed: int = 0, **more: Any) -> Any:
    """Three DeltaNet layers and one of attention, as Qwen3.5 repeats them. more: for the config."""
    config = Qwen3_5TextConfig(num_hidden_layers=4, linear_conv_kernel_dim=4, **SIZE | DELTANET | more)
    return _build(Qwen3_5ForCausalLM, config, seed)


def qwen3_5_for_a_gpu(seed: int = 0, **more: Any) -> Any:
    """The same with heads of 64 and rows of 128, which a server's kernels for NVFP4 and DeltaNet ask for."""
    wide = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "tie_word_embeddings": True,
        "rope_parameters": ROPE | {"partial_rotary_factor": 0.25},
    }
    return qwen3_5(seed, **wide | more)


def tokens(seed: int = 0) -> Any:
    """Four rows of sixteen tokens."""
    return torch.randint(0, SIZE["vocab_size"], (4, 16), generator=torch.Generator().manual_seed(seed))


def _build(kind: Any, config: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    config.architectures = [kind.__name__]  # ModelOpt's export asks for it; from_pretrained would set it
    model = kind(config).to(torch.bfloat16).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if (
                weight.ndim == 2 or ".experts." in name
            ):  # input channels of unlike sizes, as trained models have
                weight.mul_(torch.exp2(torch.randn(weight.shape[-1])))
    return model
