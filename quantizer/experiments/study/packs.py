"""Dialogues as batches of a few fixed shapes, all made before the first step, as input for CUDA graphs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from quantizer.data.render import TrainingSample

WIDTHS: Final = (96, 192, 256, 320, 384, 512, 704, 1280)
LIKE: Final = 64
"""The number of positions is padded to a multiple of this."""


@dataclass
class Pack:
    """Batches of one shape.

    ids: int64 [batches, rows, width]. places: int64 [batches, n], positions in the flattened rows whose hidden
    state predicts a learned token; padded with rows * width, one beyond the last. targets: int64 [batches, n],
    those tokens. counts: learned tokens of each batch.
    """

    ids: Tensor
    places: Tensor
    targets: Tensor
    counts: list[int]

    def to(self, device: str) -> Pack:
        return Pack(self.ids.to(device), self.places.to(device), self.targets.to(device), self.counts)


Order = list[tuple[int, int]]
"""Steps: the index of the pack, and of the batch in it."""


def packs(
    samples: Sequence[TrainingSample], tokens: int, pad: int, seed: int, every: bool = False
) -> list[Pack]:
    """All samples once, in batches of about `tokens` padded tokens. every: all tokens are learned."""
    rng = random.Random(f"packs {seed}")
    order = list(range(len(samples)))
    rng.shuffle(order)
    made = []
    for low, width in zip((0, *WIDTHS), WIDTHS, strict=False):
        mine = [samples[i] for i in order if low < len(samples[i].ids) <= width]
        rows = max(1, tokens // width)
        groups = [mine[i : i + rows] for i in range(0, len(mine), rows)]
        if groups:
            made.append(_pack(groups, rows, width, pad, every))
    return made


def shuffled(made: Sequence[Pack], steps: int, seed: int) -> Order:
    """`steps` steps over all batches; every epoch in a new order."""
    rng = random.Random(f"order {seed}")
    order: Order = []
    every = [(i, j) for i, pack in enumerate(made) for j in range(len(pack.counts))]
    while len(order) < steps:
        rng.shuffle(every)
        order += every
    return order[:steps]


def _pack(groups: list[list[TrainingSample]], rows: int, width: int, pad: int, every: bool) -> Pack:
    ids = np.full((len(groups), rows, width), pad, dtype=np.int64)
    learned = np.zeros((len(groups), rows, width), dtype=bool)
    for batch, group in enumerate(groups):
        for line, sample in enumerate(group):
            size = len(sample.ids)
            ids[batch, line, :size] = sample.ids
            learned[batch, line, 1:size] = True if every else sample.learned[1:]
    counts = learned.sum(axis=(1, 2))
    most = -(-int(counts.max()) // LIKE) * LIKE
    places = np.full((len(groups), most), rows * width, dtype=np.int64)
    targets = np.zeros((len(groups), most), dtype=np.int64)
    for batch, marks in enumerate(learned):
        found = np.flatnonzero(marks)
        places[batch, : len(found)] = found - 1
        targets[batch, : len(found)] = ids[batch].ravel()[found]
    return Pack(torch.from_numpy(ids), torch.from_numpy(places), torch.from_numpy(targets), counts.tolist())
