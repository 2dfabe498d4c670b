"""Models of a few thousand weights, random, in BF16: the shapes of the real ones."""

from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
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

EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
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


def decoder(kind: str, seed: int = 0, **more: Any) -> Any:
    """Two layers of any architecture, by its `model_type`, with numbers in what is initialized to nothing, too."""
    ends: dict[str, Any] = {"num_hidden_layers": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(kind, **SIZE | ends | more)
    model = _build(MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], config, seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("bias", "sinks")):
                weight.normal_(0, 0.1)
    return model


def qwen3_moe(seed: int = 0, **more: Any) -> Any:
    """Two layers of Qwen3-MoE: four experts, of which two see a token."""
    return decoder("qwen3_moe", seed, **EXPERTS | more)


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
