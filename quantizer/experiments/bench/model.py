"""What the benchmark trains (a random model and rows of tokens), the plain loop, and the table of results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from quantizer.data.batches import Step, collate
from quantizer.data.render import TrainingSample
from quantizer.recipes.recipe import Train
from quantizer.train.weights import learning_rate

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


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a benchmark: `rows` of `tokens` in a batch, and `steps`, of which the first half is warm-up."""

    rows: int = 8
    tokens: int = 2048
    steps: int = 20
    shape: dict[str, Any] = field(default_factory=lambda: SHAPE)

    @property
    def batch(self) -> int:
        return self.rows * self.tokens

    def of(self, settings: Train) -> Train:
        """The settings for batches of this size."""
        return replace(settings, batch_tokens=self.batch, micro_tokens=self.batch, max_steps=self.steps)


WHOLE: Final = Size()
_SMALL = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
TINY: Final = Size(
    2, 128, 20, {**SHAPE, **_SMALL, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
)


def rows(size: Size, share: float, mixed: bool) -> list[TrainingSample]:
    """Random tokens in turns, of which `share` are the assistant's. mixed: rows of different lengths."""
    rng = np.random.default_rng(7)
    return [
        _row(
            rng,
            int(rng.integers(size.tokens // 8, size.tokens + 1)) if mixed else size.tokens,
            share,
            size.shape["vocab_size"],
        )
        for _ in range(size.rows * size.steps * (2 if mixed else 1))
    ]


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


def build(size: Size, device: str) -> nn.Module:
    """The random model in BF16."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        model: nn.Module = Qwen3ForCausalLM(Qwen3Config(**size.shape))
    return model.to(torch.bfloat16)


def plain_loop(
    model: nn.Module, steps: Sequence[Step], data: Sequence[TrainingSample], settings: Train
) -> tuple[list[float], list[float]]:
    """A typical training loop with transformers. Returns losses, and the seconds since the start after each step."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    adam = torch.optim.AdamW([{"params": matrices}, {"params": vectors}], betas=(0.9, 0.95), weight_decay=0.0,
                             fused=True)  # fmt: skip
    model.train()
    device = next(model.parameters()).device
    began, losses, times = time.perf_counter(), [], []
    for number, step in enumerate(steps):
        for group in adam.param_groups:
            group["lr"] = learning_rate(number, len(steps), settings)
        batch = collate(data, step[0], 0).to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(input_ids=batch.ids, labels=batch.labels).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        adam.step()
        adam.zero_grad()
        losses.append(loss.detach())
        if (number + 1) % (len(steps) // 2) == 0:
            wait()
        times.append(time.perf_counter() - began)
    return [float(loss) for loss in losses], times


def wait() -> None:
    """Wait until the device has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The measurements of a subject. seconds: per step. before: seconds of calibration, teacher, and the first half
    of the steps, including compilation. bytes: peak memory. losses: of every step."""

    name: str
    tokens_per_second: float
    seconds: float
    bytes: int
    before: dict[str, float]
    losses: list[float]


def table(results: list[BenchResult]) -> list[str]:
    """A table for people: each subject relative to the first, and the difference of its losses from the plain loop
    of its kind."""
    lines = [
        f"{'subject':32} {'ms a step':>9} {'tokens/s':>9} {'x':>6} {'GiB':>6} {'x':>6} {'loss off by':>12}"
    ]
    if not results:
        return lines
    first, plain = results[0], {one.name: one for one in results if one.name.startswith("plain")}
    for one in results:
        kin = plain.get(f"plain {one.name.partition(',')[0]}")
        off = "" if kin is None else f"{_off(one.losses, kin.losses):12.1e}"
        lines.append(
            f"{one.name:32} {1000 * one.seconds:9.1f} {one.tokens_per_second:9,.0f} "
            f"{one.tokens_per_second / first.tokens_per_second:6.2f} {one.bytes / 2**30:6.1f} "
            f"{one.bytes / first.bytes:6.2f} {off}"
        )
    return lines


def _off(losses: list[float], wanted: list[float]) -> float:
    """The largest relative difference between two loss curves."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True))
