"""Greedy decoding of all prompts at once with a static key-value cache, so that a step is a single CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from quantizer.experiments.study.graph import Graphs
from quantizer.experiments.study.plain import causal, hidden_states

ROWS = 128
"""Prompts that are prefilled at once."""
LOOK = 8
"""Steps between two checks whether all rows have ended; each check waits for the device."""


@torch.no_grad()
def greedy(
    model: Any, prompts: Sequence[Sequence[int]], *, pad: int, end: int, most: int, graphs: bool = True
) -> list[list[int]]:
    """Each prompt's reply, up to and including `end`, with at most `most` tokens."""
    model.eval()
    order = sorted(
        range(len(prompts)), key=lambda i: len(prompts[i])
    )  # so that prompts read together have little padding
    state = _State(model, [prompts[i] for i in order], pad, most)
    step = Graphs(str(model.device), graphs).made_of(lambda: state.step(end))
    for number in range(most):
        step()
        if number % LOOK == LOOK - 1 and bool(state.done.all()):
            break
    replies = dict(zip(order, state.out.tolist(), strict=True))
    return [_until(replies[i], end) for i in range(len(prompts))]


class _State:
    """The tensors that a step reads and writes, always at the same addresses.

    Rows are padded on the right; the keys of padding are overwritten before they are read.
    """

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], pad: int, most: int) -> None:
        self.model, device = model, model.device
        width = max(map(len, prompts))
        length = -(-(width + most) // 16) * 16  # the width that attention kernels prefer for masks
        config, rows = model.config, len(prompts)
        shape = (rows, config.num_key_value_heads, length, config.head_dim)
        self.keys, self.values = (
            [torch.zeros(shape, dtype=model.dtype, device=device) for _ in model.model.layers]
            for _ in range(2)
        )
        self.place = torch.tensor([len(p) for p in prompts], device=device)
        self.columns = torch.arange(length, device=device)
        self.token = torch.cat(
            [self._read(_padded(prompts[i : i + ROWS], pad), i) for i in range(0, rows, ROWS)]
        )
        self.out = torch.full((rows, most), pad, device=device)
        self.done = torch.zeros(rows, dtype=torch.bool, device=device)
        self.number = torch.zeros(1, dtype=torch.int64, device=device)

    def _read(self, padded: list[list[int]], first: int) -> Tensor:
        """Prefill the caches with some prompts. Returns their next tokens."""
        ids = torch.tensor(padded, device=self.place.device)
        lengths = self.place[first : first + len(ids)]

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            rows = slice(first, first + len(ids))
            self.keys[number][rows, :, : ids.shape[1]] = k
            self.values[number][rows, :, : ids.shape[1]] = v
            return causal(number, q, k, v)

        states = hidden_states(self.model, ids, attend=attend)
        return self._next(states[torch.arange(len(ids), device=ids.device), lengths - 1])

    def _next(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.model.lm_head.weight).argmax(dim=-1)

    def step(self, end: int) -> None:
        """Record the current token of every row and compute the next."""
        self.out.index_copy_(1, self.number, self.token[:, None])
        self.done.logical_or_(self.token == end)
        seen = (self.columns[None] <= self.place[:, None])[:, None, None]
        where = self.place[:, None, None, None]

        def attend(number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            for cache, new in ((self.keys[number], k), (self.values[number], v)):
                cache.scatter_(2, where.expand_as(new), new)
            rows, heads, _, width = q.shape
            q = q.reshape(rows, k.shape[1], heads // k.shape[1], width)  # query heads grouped by key head
            found = F.scaled_dot_product_attention(q, self.keys[number], self.values[number], attn_mask=seen)
            return found.reshape(rows, heads, 1, width)

        hidden = hidden_states(self.model, self.token[:, None], self.place[:, None], attend)
        self.token.copy_(self._next(hidden[:, 0]))
        self.place += 1
        self.number += 1


def _padded(prompts: Sequence[Sequence[int]], pad: int) -> list[list[int]]:
    width = max(map(len, prompts))
    return [[*p, *[pad] * (width - len(p))] for p in prompts]


def _until(row: list[int], end: int) -> list[int]:
    return row[: row.index(end) + 1] if end in row else row
