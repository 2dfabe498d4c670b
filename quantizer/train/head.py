"""The output matrix and the loss of a language model, fused: hidden states in, loss and gradients out.

Logits are the largest tensor of all, so they are computed for one chunk of positions at a time, turned into the loss and their own
gradient, and discarded; backward is a mere multiplication. Where few positions meet a large vocabulary the logits' gradients are
smaller than the head's; then those are kept, and the head's gradient is one product in backward. Only positions that predict a token
of the assistant are passed in.

    ce    cross entropy of that token
    kl    T^2 * KL(teacher || student) of the next-token distribution at temperature T (arXiv 1503.02531)

Both are sums over positions, divided by the count of a whole optimizer step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK_BYTES: Final = 2**28
"""Float32 logits of one chunk."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The objective. ce_share: the weight of the cross entropy; the rest is divergence."""

    ce_share: float = 1.0
    temperature: float = 1.0


class Taught(NamedTuple):
    """The teacher's output. hidden: float [n, width] at the same positions. head: float [vocabulary, width]."""

    hidden: Tensor
    head: Tensor


class Loss(NamedTuple):
    """Sums over positions divided by the count: float32 []. total: what is learned. ce, kl: its parts, without their
    shares; zero where a share is."""

    total: Tensor
    ce: Tensor
    kl: Tensor


def head_loss(
    hidden: Tensor,
    head: Tensor,
    targets: Tensor,
    count: float,
    goal: Goal,
    taught: Taught | None = None,
    compiled: bool = False,
) -> Loss:
    """The loss at n positions.

    hidden: float [n, width]. head: float [vocabulary, width]. targets: int64 [n]. taught: needed where `goal.ce_share` is below 1.
    """
    if goal.ce_share < 1 and taught is None:
        raise ValueError("a divergence needs a teacher")
    parts = None if taught is None else (taught.hidden, taught.head)
    head_of: Any = _Head  # torch leaves `apply` without annotations
    total, ce, kl = head_of.apply(hidden, head, targets, parts, float(count), goal, compiled)
    return Loss(total, ce, kl)


class _Head(torch.autograd.Function):
    """Gradients are made in forward; see the module's text. Those of `ce` and `kl` are not asked for."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        targets: Tensor,
        taught: tuple[Tensor, Tensor] | None,
        count: float,
        goal: Goal,
        compiled: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        needs_hidden, needs_head = ctx.needs_input_grad[:2]
        matrix = head.to(hidden.dtype)
        to_hidden = torch.empty_like(hidden) if needs_hidden else None
        late = needs_head and len(hidden) * hidden.element_size() < 4 * hidden.shape[1]
        changes = hidden.new_empty(len(hidden), head.shape[0]) if late else None
        to_head = torch.zeros_like(head, dtype=torch.float32) if needs_head and not late else None
        sums = torch.zeros(2, device=hidden.device)
        for part in _parts(len(hidden), head.shape[0]):
            h = hidden[part]
            logits = F.linear(h, matrix).float()
            theirs = None
            if goal.ce_share < 1 and taught is not None:
                theirs = F.linear(taught[0][part], taught[1]).float()
            change, found = _work(compiled)(logits, targets[part], theirs, goal)
            sums += found
            if not (needs_hidden or needs_head):
                continue
            change = (change / count).to(h.dtype)
            if to_hidden is not None:
                torch.mm(change, matrix, out=to_hidden[part])
            if to_head is not None:
                to_head += change.T @ h
            if changes is not None:
                changes[part] = change
        late_parts = (changes, hidden) if late else (None, None)
        ctx.save_for_backward(to_hidden, to_head, *late_parts)
        ctx.dtype = head.dtype
        ce, kl = sums[0] / count, sums[1] / count
        return goal.ce_share * ce + (1 - goal.ce_share) * kl, ce, kl

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_head, changes, hidden = ctx.saved_tensors
        if changes is not None:
            to_head = (changes.T @ hidden).mul_(gradient)
        elif to_head is not None:
            to_head = to_head * gradient
        if to_head is not None:
            to_head = to_head.to(ctx.dtype)
        if to_hidden is not None:
            to_hidden = to_hidden * gradient
        return to_hidden, to_head, None, None, None, None, None


def _parts(positions: int, words: int) -> list[slice]:
    most = max(1, CHUNK_BYTES // (4 * words))
    size = -(
        -positions // max(1, -(-positions // most))
    )  # all of about the same size, so that no small one is left
    return [slice(start, min(start + size, positions)) for start in range(0, positions, max(1, size))]


def work(logits: Tensor, targets: Tensor, theirs: Tensor | None, goal: Goal) -> tuple[Tensor, Tensor]:
    """Of float32 logits [n, words]: the gradient of the summed loss for them, float32 [n, words], and the sums of
    cross entropy and divergence, float32 [2]. theirs: the teacher's logits."""
    change = torch.zeros_like(logits)
    ce = kl = logits.new_zeros(())
    if goal.ce_share > 0:
        logp = F.log_softmax(logits, dim=-1)
        ce = -logp.gather(1, targets[:, None]).sum()
        words = torch.arange(logits.shape[1], device=logits.device)
        change = goal.ce_share * (logp.exp() - (words == targets[:, None]).float())
    if theirs is not None:
        kl, other = divergence(logits, theirs, goal)
        change = change + (1 - goal.ce_share) * other
    return change, torch.stack([ce, kl])


def divergence(logits: Tensor, theirs: Tensor, goal: Goal) -> tuple[Tensor, Tensor]:
    """T^2 KL(theirs || ours), summed: float32 []; and its gradient for our logits, T (p - q): float32 [n, words]."""
    ours, q = F.log_softmax(logits / goal.temperature, -1), F.log_softmax(theirs / goal.temperature, -1)
    kl = goal.temperature**2 * (q.exp() * (q - ours)).sum()
    return kl, goal.temperature * (ours.exp() - q.exp())


_compiled: list[Callable[..., tuple[Tensor, Tensor]]] = []


def _work(compiled: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    if not compiled:
        return work
    if not _compiled:
        _compiled.append(torch.compile(work))
    return _compiled[0]
