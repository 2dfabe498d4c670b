"""The shapes of the models that are measured, by name."""

from typing import Any, Final

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "9B": {},
    "9B, 8 layers": {"num_hidden_layers": 8},
    "27B": {
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "intermediate_size": 17408,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 48,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
    },
}
"""What differs from `Qwen3_5TextConfig()`."""
