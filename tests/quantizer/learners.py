"""Tiny models in training, and a plain loop to hold them against."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from quantizer.core.batch import IGNORE, Batch
from quantizer.data.batches import collate, in_order
from quantizer.data.render import TrainingSample
from quantizer.layers.attach import attach, make_plan
from quantizer.layers.linear import hold_weights
from quantizer.ptq.calibrate import calibrate
from quantizer.recipes.recipe import Layers, Train
from quantizer.train.learner import Learner, teacher_states
from quantizer.train.loop import Record, Trainer
from quantizer.train.weights import learning_rate
from tests.quantizer import tiny

PAD = 0
PLAIN = Train(
    loss="ce", quantized=False, epochs=2, lr=3e-3, batch_tokens=512, micro_tokens=256, precision="fp32",
    weight_decay=0.1, clip=1.0, compile=False,
)  # fmt: skip
QAT = replace(PLAIN, quantized=True)
QAD = replace(QAT, loss="kl")
LSQ = replace(QAD, trained="scales")


def samples(count: int = 12, seed: int = 0) -> list[TrainingSample]:
    """Rows that follow a rule (each token is the one before plus a step), so that there is something to learn."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        length, first, step = rng.integers(8, 40), rng.integers(0, 90), rng.integers(1, 4)
        ids = (first + step * np.arange(length)) % tiny.SIZE["vocab_size"]
        made.append(TrainingSample(ids.astype(np.int32), np.arange(length) >= length // 2))
    return made


def learner(settings: Train, seed: int = 0, kind: Any = tiny.qwen3) -> Learner:
    """A tiny model as the settings want it: plain, quantized, or with learned scales; not held yet."""
    model = kind(seed)
    if settings.quantized:
        attach(model, make_plan(model, Layers()))
        calibrate(model, list(in_order(samples(), PAD, 512)))
    if settings.precision != "bf16":
        model.float()
    if settings.trained == "scales":
        model.requires_grad_(False)
        for layer in model.modules():
            if hasattr(layer, "learn_scales"):
                layer.learn_scales()
    return Learner(model, settings)


def trainer(settings: Train, **more: Any) -> Trainer:
    """A run over the samples, with a teacher where the loss wants one."""
    made = learner(settings)
    data = samples()
    teacher = None
    if settings.loss != "ce":
        teacher = teacher_states(learner(replace(settings, trained="weights")), data, PAD, 512)
    hold = hold_weights if settings.quantized else None
    return Trainer(made, data, PAD, settings, **{"teacher": teacher, "hold": hold, **more})


def silent(text: str) -> None:
    """A log that nobody reads."""


def plain_loop(
    model: nn.Module, plan: Any, data: list[TrainingSample], settings: Train, steps: int
) -> list[float]:
    """Transformers' model, whole logits, one backward for a step: what ours has to do faster."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    adam = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
    )
    losses = []
    for number, step in enumerate(plan[:steps]):
        for group in adam.param_groups:
            group["lr"] = learning_rate(number, len(plan), settings)
        batch: Batch = collate(data, [i for micro in step for i in micro], PAD)
        logits = model(input_ids=batch.ids, attention_mask=batch.attention).logits
        loss = F.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), batch.labels[:, 1:].flatten(), ignore_index=IGNORE
        )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        adam.step()
        adam.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def losses(records: list[Record]) -> list[float]:
    return [record.loss for record in records]
