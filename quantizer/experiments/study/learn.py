"""The study's training loop: learner, loss, master weights and schedule of `quantizer.train`, with few tensor
shapes.

A step works on tensors at fixed addresses (forward, loss, backward, clip, AdamW, rounding), with one CUDA graph for
each width. A test compares it with `quantizer.train.loop.Trainer`, step by step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from quantizer.experiments.study.graph import Graphs
from quantizer.experiments.study.packs import Order, Pack
from quantizer.experiments.study.plain import hidden_states
from quantizer.layers.linear import SERVED_DTYPE
from quantizer.recipes.recipe import Train
from quantizer.train.head import Goal, Taught, head_loss
from quantizer.train.learner import Learner
from quantizer.train.loop import moved_by, trained
from quantizer.train.optimizer_in_backward import OptimizerInBackward
from quantizer.train.weights import Weights, learning_rate, optimizer

REPORTED = 50  # steps over which the reported loss is averaged


def chosen(learner: Learner, ids: Tensor, places: Tensor) -> Tensor:
    """Hidden states at the positions of a pack's batch: [n, width]; zeros, without an effect on training, at
    padding."""
    auto = torch.autocast(ids.device.type, SERVED_DTYPE, cache_enabled=False)
    with auto if learner.precision == "autocast" else nullcontext():
        states = hidden_states(learner.model, ids).flatten(0, 1)
    states = states.to(SERVED_DTYPE) if learner.precision == "autocast" else states
    return torch.cat([states, states.new_zeros(1, states.shape[1])]).index_select(0, places)


@torch.no_grad()
def said(learner: Learner, packs: Sequence[Pack]) -> list[Tensor]:
    """A teacher's hidden states for every batch of every pack, [batches, n, width]."""
    return [
        torch.stack([chosen(learner, ids, places) for ids, places in zip(pack.ids, pack.places, strict=True)])
        for pack in packs
    ]


@torch.no_grad()
def distance(
    learner: Learner, packs: Sequence[Pack], taught: Sequence[Tensor], head: Tensor
) -> tuple[float, float]:
    """Mean cross entropy and mean divergence from the teacher over all learned tokens."""
    sums, count = torch.zeros(2, dtype=torch.float64), 0
    goal = Goal(ce_share=0.5)
    matrix: Any = learner.model.get_submodule("lm_head").weight
    for pack, states in zip(packs, taught, strict=True):
        for i, learned in enumerate(pack.counts):
            hidden = chosen(learner, pack.ids[i], pack.places[i])
            loss = head_loss(hidden, matrix, pack.targets[i], 1.0, goal, Taught(states[i], head))
            empty = (len(hidden) - learned) * math.log(matrix.shape[0])
            sums += torch.tensor([float(loss.ce) - empty, float(loss.kl)], dtype=torch.float64)
            count += learned
    return float(sums[0] / count), float(sums[1] / count)


class Loop:
    """The training loop.

    packs, order: the data and its order; the packs are on the learner's device. taught, head: the teacher's hidden
    states and head, if the loss is a divergence. weights, hold, refresh: as in `Trainer`.
    """

    def __init__(
        self,
        learner: Learner,
        packs: Sequence[Pack],
        order: Order,
        settings: Train,
        *,
        taught: Sequence[Tensor] | None = None,
        head: Tensor | None = None,
        weights: Weights | OptimizerInBackward | None = None,
        hold: Callable[[nn.Module], None] | None = None,
        refresh: Callable[[], None] | None = None,
        graphs: bool = True,
    ) -> None:
        self.learner, self.packs, self.order, self.settings = learner, packs, order, settings
        self.taught, self.head = taught, head
        self.weights = weights or moved_by(settings, trained(learner.model))
        self.exact = isinstance(self.weights, Weights)
        self.optimizer = optimizer(self.weights, settings) if isinstance(self.weights, Weights) else None
        self._hold, self._refresh = hold, refresh
        device = next(learner.parameters()).device
        self.cuda = device.type == "cuda"
        self.lr = torch.zeros((), device=device)
        self.share = torch.zeros((), device=device)
        self.loss = torch.zeros((), device=device)
        self.losses: list[Tensor] = []
        if self.cuda and self.optimizer:
            for group in self.optimizer.param_groups:
                group["capturable"], group["lr"] = True, self.lr
        recorder = Graphs(device.type, graphs and self.exact)
        self.places = [[t[0].clone() for t in self._parts(i)] for i in range(len(packs))]
        self.work = [recorder.made_of(partial(self._work, i)) for i in range(len(packs))]

    def run(self) -> dict[str, Any]:
        """Run all steps. Returns values for the log. Losses are means over learned tokens."""
        began = time.perf_counter()
        self.learner.train()
        self.hold()
        for number, (pack, batch) in enumerate(self.order):
            self._set(number, pack, batch)
            self._step(number, pack)
            self.losses.append(self.loss.clone())
            if self._refresh and self.settings.refresh and (number + 1) % self.settings.refresh == 0:
                self._refresh()
                self.hold()
        self.learner.eval()
        losses = torch.stack(self.losses).tolist()
        if not all(map(math.isfinite, losses)):
            raise FloatingPointError(f"the loss is no number any more at lr {self.settings.lr:g}")
        first, last = losses[:REPORTED], losses[-REPORTED:]
        return {
            "steps": len(losses),
            "loss": [round(sum(part) / len(part), 4) for part in (first, last)],
            "seconds": round(time.perf_counter() - began, 1),
            "graphs": self.cuda and self.exact and not Graphs.failed,
        }

    def _step(self, number: int, pack: int) -> None:
        if isinstance(self.weights, Weights):
            return self.work[pack]()
        if not self.weights.measured:
            with self.weights.measuring():
                self.work[pack]()
        self.weights.begin(learning_rate(number, len(self.order), self.settings))
        self.work[pack]()
        self.weights.finish()

    def close(self) -> None:
        """Release the graphs and their memory."""
        self.work, self.places = [], []

    def hold(self) -> None:
        if self._hold:
            self._hold(self.learner.model)

    def _parts(self, pack: int) -> list[Tensor]:
        """The tensors of a pack, with batches in the first dimension, and the teacher's hidden states."""
        one = self.packs[pack]
        return [one.ids, one.places, one.targets, *([self.taught[pack]] if self.taught else [])]

    def _set(self, number: int, pack: int, batch: int) -> None:
        """Copy everything that a step reads to its fixed addresses."""
        for place, whole in zip(self.places[pack], self._parts(pack), strict=True):
            place.copy_(whole[batch])
        rate = learning_rate(number, len(self.order), self.settings)
        self.lr.fill_(rate)
        if not self.cuda and self.optimizer:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        self.share.fill_(1 / max(1, self.packs[pack].counts[batch]))

    def _work(self, pack: int) -> None:
        ids, places, targets, *taught = self.places[pack]
        masters = self.weights.masters.values() if isinstance(self.weights, Weights) else ()
        for parameter in (*self.weights.model.values(), *masters):
            parameter.grad = None  # a recording that failed may have left one
        hidden = chosen(self.learner, ids, places)
        matrix: Any = self.learner.model.get_submodule("lm_head").weight
        teaching = Taught(taught[0], self.head) if taught and self.head is not None else None
        loss = head_loss(hidden, matrix, targets, 1.0, self.learner.goal, teaching)
        (loss.total * self.share).backward()  # type: ignore[no-untyped-call]
        if self.optimizer and isinstance(self.weights, Weights):
            self.weights.collect()
            self.weights.clip(self.settings.clip)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.weights.spread()
            self.hold()
        else:
            self.weights.collect()
        # Hidden states of padding are zeros: all words are equally likely there, and the divergence is zero.
        filled = (places == ids.numel()).sum() * (self.learner.goal.ce_share * math.log(matrix.shape[0]))
        self.loss.copy_((loss.total.detach() - filled) * self.share)
