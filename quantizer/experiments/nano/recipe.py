"""The numbers of the nano models in one place. Changing one makes other models."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The shape of a Qwen3 decoder. Row lengths of Q4_K tensors are multiples of 256 (ggml's QK_K)."""

    hidden: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    intermediate: int = 768
    vocab: int = 2048
    positions: int = 4096
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class TrainingStage:
    """One training run over generated dialogues."""

    conversations: int
    epochs: int
    tokens_per_step: int = 65536
    lr: float = 1e-3
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0
    max_tokens: int = 2048  # longer samples are left out


@dataclass(frozen=True, slots=True)
class NanoRecipe:
    """Everything that determines the two models, apart from the code and a GPU's rounding."""

    data_seed: int = 20261121
    torch_seed: int = 20261121
    tokenizer_texts: int = 20000
    shape: ModelShape = ModelShape()
    # The base is trained on every token, including prompts.
    base: TrainingStage = TrainingStage(conversations=80_000, epochs=2)
    # Annie is trained only on what the assistant writes, long enough to replace the base's style.
    annie: TrainingStage = TrainingStage(conversations=420_000, epochs=1)
    # Annie goes on with everyday dialogues, half of them the earlier stage's.
    everyday: TrainingStage = TrainingStage(conversations=600_000, epochs=1)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


NANO = NanoRecipe()

# For a test on a CPU: the same path in seconds; the models are useless.
TINY = replace(
    NANO,
    tokenizer_texts=300,
    shape=ModelShape(layers=2, intermediate=256, vocab=600),
    base=TrainingStage(conversations=64, epochs=1, tokens_per_step=4096, warmup=2),
    annie=TrainingStage(conversations=64, epochs=1, tokens_per_step=4096, warmup=2),
    everyday=TrainingStage(conversations=64, epochs=1, tokens_per_step=4096, warmup=2),
)
