"""What the benchmarks train: random models, and rows of random tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from quantizer.data.render import TrainingSample

SHAPE: Final = {
    "vocab_size": 32768,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
TURN: Final = 64  # tokens; a row is made of turns


def even_rows(count: int, tokens: int, share: float, vocabulary: int) -> list[TrainingSample]:
    """So many rows of one length."""
    rng = np.random.default_rng(7)
    return [_row(rng, tokens, share, vocabulary) for _ in range(count)]


def _row(rng: np.random.Generator, tokens: int, share: float, vocabulary: int) -> TrainingSample:
    turns = max(2, tokens // TURN)  # the first one is never the assistant's
    ids = rng.integers(0, vocabulary, turns * TURN).astype(np.int32)
    learned = np.repeat(rng.permutation(turns) < max(1, round(share * turns)), TURN)
    learned[0] = False
    return TrainingSample(ids, learned)


def random_qwen3_5(changes: Mapping[str, Any], device: str) -> nn.Module:
    """A random Qwen3.5, made in BF16 on its device. changes: what differs from `Qwen3_5TextConfig()`."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    return in_bf16(lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(**changes)), device)


def in_bf16(make: Callable[[], nn.Module], device: str) -> nn.Module:
    """What `make` makes, in BF16 and on the device from the beginning; the same in every process."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return make()
    finally:
        torch.set_default_dtype(torch.float32)


def wait() -> None:
    """Wait until the device has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
