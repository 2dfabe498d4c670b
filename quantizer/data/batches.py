"""Group samples of similar length into batches, and plan the steps of a whole run, by lengths and a seed alone.

A plan is a list of optimizer steps, a step a list of micro-batches, a micro-batch a list of sample indices.
"""

import math
import random
from collections.abc import Iterator, Sequence

import torch

from quantizer.core.batch import IGNORE, Batch
from quantizer.data.render import TrainingSample

Micro = tuple[int, ...]
Step = tuple[Micro, ...]
LIKE = 16
"""Lengths that differ by less than this count as equal: shuffling among them costs little padding."""


def plan(
    lengths: Sequence[int], *, batch_tokens: int, micro_tokens: int, epochs: float, seed: int, share: int = 1
) -> list[Step]:
    """The steps of a run, each with at most `batch_tokens` padded tokens in micro-batches of at most `micro_tokens`.

    Every epoch is shuffled again. `share` processes take the micro-batches of a step in turn, so every step has a multiple of it;
    the last step of an epoch is filled up from the epoch's beginning.
    """
    rng = random.Random(f"plan {seed}")
    steps: list[Step] = []
    for epoch in range(math.ceil(epochs)):
        micros = batches(lengths, micro_tokens, rng)
        made = _steps(micros, lengths, batch_tokens, share)
        part = min(1.0, epochs - epoch)
        steps += made[: max(1, round(len(made) * part))]
    return steps


def batches(lengths: Sequence[int], tokens: int, rng: random.Random | None = None) -> list[Micro]:
    """Every sample once, in batches of at most `tokens` padded tokens. Without a random generator, shortest first."""
    order = list(range(len(lengths)))
    if rng:
        rng.shuffle(order)
    order.sort(key=lambda i: lengths[i] // LIKE if rng else lengths[i])  # stable: random among like lengths
    made: list[Micro] = []
    group: list[int] = []
    longest = 0
    for i in order:
        if group and max(longest, lengths[i]) * (len(group) + 1) > tokens:
            made.append(tuple(group))
            group, longest = [], 0
        group.append(i)
        longest = max(longest, lengths[i])
    if group:
        made.append(tuple(group))
    if rng:
        rng.shuffle(made)
    return made


def collate(samples: Sequence[TrainingSample], chosen: Sequence[int], pad: int, multiple: int = 1) -> Batch:
    """Samples as one batch, padded on the right to a multiple of `multiple`, so that a compiled model sees few
    widths."""
    width = max(len(samples[i].ids) for i in chosen)
    width = -(-width // multiple) * multiple
    ids = torch.full((len(chosen), width), pad, dtype=torch.int64)
    labels = torch.full((len(chosen), width), IGNORE, dtype=torch.int64)
    attention = torch.zeros((len(chosen), width), dtype=torch.bool)
    for line, i in enumerate(chosen):
        row, length = torch.from_numpy(samples[i].ids).long(), len(samples[i].ids)
        ids[line, :length] = row
        labels[line, :length] = torch.where(torch.from_numpy(samples[i].learned), row, IGNORE)
        attention[line, :length] = True
    return Batch(ids, labels, attention)


def in_order(samples: Sequence[TrainingSample], pad: int, tokens: int) -> Iterator[Batch]:
    """All samples in batches, shortest first, for a single pass."""
    for chosen in batches([len(sample.ids) for sample in samples], tokens):
        yield collate(samples, chosen, pad)


def _steps(micros: Sequence[Micro], lengths: Sequence[int], batch_tokens: int, share: int) -> list[Step]:
    steps: list[Step] = []
    step: list[Micro] = []
    tokens = 0
    for micro in micros:
        more = len(micro) * max(lengths[i] for i in micro)
        if step and len(step) % share == 0 and tokens + more > batch_tokens:
            steps.append(tuple(step))
            step, tokens = [], 0
        step.append(micro)
        tokens += more
    while len(step) % share:
        step.append(micros[len(step) % len(micros)])
    return [*steps, tuple(step)] if step else steps
