"""A training loop in plain PyTorch.

One step: a batch of samples of similar length, bf16 autocast around an fp32 model on a GPU, cross entropy over the
learned tokens, AdamW with gradient clipping, linear warm-up and cosine decay to a tenth. There is no resuming: the
whole run takes a minute or two on one GPU.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

from quantizer.core.batch import to_device
from quantizer.data.batches import batches
from quantizer.experiments.nano.data import IGNORE, TokenRow, padded
from quantizer.experiments.nano.recipe import ModelShape, TrainingStage

Log = Callable[[str], None]
Step = tuple[int, int, Tensor, Tensor]


def build_model(shape: ModelShape, seed: int, pad: int, end: int, device: str = "cpu") -> Qwen3ForCausalLM:
    """A new model in fp32. Embeddings are tied: at this size a separate head would add 7 % of weights."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.positions,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        rms_norm_eps=shape.norm_eps,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
    )
    model = Qwen3ForCausalLM(config)
    module: nn.Module = model  # transformers' own `to` has another signature than torch's
    module.to(device, torch.float32)
    return model


def learning_rate(step: int, steps: int, run: TrainingStage) -> float:
    """Linear warm-up, then cosine decay to a tenth."""
    if step < run.warmup:
        return run.lr * (step + 1) / run.warmup
    done = (step - run.warmup) / max(1, steps - run.warmup)
    return run.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done))))


def optimizer(model: nn.Module, run: TrainingStage, fused: bool) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices and none on vectors."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": run.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=run.lr, betas=(0.9, 0.95), fused=fused)


def loss_of(model: Qwen3ForCausalLM, ids: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy over learned tokens. ids, labels: int64 [rows, tokens].

    Computed in fp32 on a CPU: one with no more than AVX2 multiplies bf16 matrices 12 to 45 times more slowly.
    """
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=ids.is_cuda):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # [rows, tokens, width]
        kept = labels != IGNORE
        logits = model.lm_head(hidden[kept])  # [learned tokens, vocab]
    return F.cross_entropy(logits.float(), labels[kept])


def steps_of(
    made: list[TokenRow], run: TrainingStage, seed: int, pad: int, learn_all: bool
) -> Iterator[Step]:
    """(number, total, ids, labels) of every step of a run; int64 [rows, tokens] on the CPU."""
    rng = random.Random(f"batches {seed}")
    kept = [r for r in made if len(r.ids) <= run.max_tokens]
    lengths = [len(row.ids) for row in kept]
    plan = [group for _ in range(run.epochs) for group in batches(lengths, run.tokens_per_step, rng)]
    for number, group in enumerate(plan):
        ids, labels = padded(kept, group, pad, learn_all)
        yield number, len(plan), torch.from_numpy(ids), torch.from_numpy(labels)


def train(
    model: Qwen3ForCausalLM,
    made: list[TokenRow],
    run: TrainingStage,
    *,
    seed: int,
    pad: int,
    learn_all: bool,
    log: Log,
) -> dict[str, float]:
    """Train in place on the model's device. Returns losses and times for the log."""
    device = next(model.parameters()).device
    adam = optimizer(model, run, fused=device.type == "cuda")
    model.train()
    started, tokens = time.perf_counter(), 0
    recent: list[Tensor] = []
    for number, total, ids, labels in steps_of(made, run, seed, pad, learn_all):
        for group in adam.param_groups:
            group["lr"] = learning_rate(number, total, run)
        loss = loss_of(model, to_device(ids, device), to_device(labels, device))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), run.clip)
        adam.step()
        adam.zero_grad(set_to_none=True)
        tokens += ids.numel()
        recent = [*recent[-49:], loss.detach()]
        if number % 100 == 0 or number == total - 1:
            mean = float(torch.stack(recent).mean())
            log(f"step {number + 1}/{total} loss {mean:.4f} {time.perf_counter() - started:.0f} s")
    seconds = time.perf_counter() - started
    mean = float(torch.stack(recent).mean())
    return {"steps": total, "padded_tokens": tokens, "loss": round(mean, 4), "seconds": round(seconds, 1)}
