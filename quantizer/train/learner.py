"""A model and its loss as one module: what a training step calls, what is sharded, and what a teacher runs through.

No attention mask is given: rows are padded at the right, all layers only look left, and nothing is learned from padding.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.core.batch import Batch, to_device
from quantizer.core.decoder import body, head, logit_scale
from quantizer.core.shard import whole
from quantizer.data.batches import batches, collate
from quantizer.data.render import TrainingSample
from quantizer.layers.deltanet import chunked
from quantizer.layers.linear import unquantized
from quantizer.recipes.recipe import Train
from quantizer.train.head import Goal, Loss, Taught, head_loss

WIDTHS: Final = 64
"""Rows are padded to a multiple of this, so that a compiled model and the allocator see few widths."""


class Micro(NamedTuple):
    """What one forward needs. ids: int64 [rows, tokens]. places: int64 [n], positions in the flattened rows whose
    hidden state foretells a token of the assistant's. targets: int64 [n], those tokens."""

    ids: Tensor
    places: Tensor
    targets: Tensor


def micro(batch: Batch) -> Micro:
    """The same batch by positions; on the CPU, so that a GPU is never asked how many there are."""
    rows, places = batch.loss_mask.nonzero(as_tuple=True)
    return Micro(batch.ids, rows * batch.ids.shape[1] + places, batch.labels[rows, places + 1])


class Learner(nn.Module):
    """model: a causal language model. scale: by `logit_scale`, of the first pass. The whole forward pass and its loss."""

    def __init__(self, model: nn.Module, settings: Train) -> None:
        super().__init__()
        self.model, self.settings = model, settings
        share = {"ce": 1.0, "kl": 0.0, "mix": settings.ce_share}[settings.loss]
        self.goal = Goal(share, settings.temperature)
        self.compiled = False
        self.scale: float | None = None

    def forward(
        self, ids: Tensor, places: Tensor, targets: Tensor, count: float, taught: Taught | None
    ) -> Loss:
        """As `Micro` and `head_loss` have it. count: of the assistant's tokens in the optimizer step."""
        hidden = self.hidden(ids, places)
        return head_loss(hidden, self.head(), targets, count, self.goal, taught, self.compiled)

    def hidden(self, ids: Tensor, places: Tensor) -> Tensor:
        """The last hidden states at some places, so that their product with `head` is logits: [n, width]."""
        if self.scale is None:
            self.scale = logit_scale(self.model)
        states = body(self.model)(input_ids=ids, use_cache=False).last_hidden_state
        states = states.flatten(0, 1).index_select(0, places) * self.scale
        if getattr(head(self.model), "bias", None) is None:
            return states  # type: ignore[no-any-return]
        return F.pad(states, (0, 1), value=self.scale)

    def head(self) -> Tensor:
        """The output matrix, with its bias, if it has one, as one more column: [vocabulary, width]."""
        own: Any = head(self.model)
        bias = getattr(own, "bias", None)
        matrix: Tensor = own.weight if bias is None else torch.cat([own.weight, bias.unsqueeze(1)], dim=1)
        return matrix

    def hidden_states(self, ids: Tensor, places: Tensor) -> Tensor:
        """`hidden` on its own: a sharded learner gathers its weights for it as for `forward`."""
        return self.hidden(ids, places)


@dataclass(frozen=True)
class Teacher:
    """What the model said before it was quantized: its last hidden states at every token of the assistant's, [all,
    width] in a file, and its head. From the two the whole distribution follows exactly, so that the teacher itself need
    not be kept, nor run in every epoch. starts: where a sample's begin.
    """

    hidden: Tensor
    head: Tensor
    starts: Sequence[int]

    def at(self, chosen: Sequence[int], device: torch.device) -> Taught:
        """For the samples of a batch, in its order."""
        parts = [self.hidden[self.starts[i] : self.starts[i + 1]] for i in chosen]
        return Taught(to_device(torch.cat(parts), device), self.head)


@torch.no_grad()
def teacher_states(
    learner: Learner, samples: Sequence[TrainingSample], pad: int, tokens: int, folder: Path | None = None
) -> Teacher:
    """Run every sample through the unquantized model once. tokens: padded ones that go through at once. folder: where
    the hidden states go to a file without a name, which the system frees with the process; by default the system's for such files.
    """
    starts = [0]
    for sample in samples:
        starts.append(starts[-1] + int(sample.learned.sum()))
    device, kept = next(learner.parameters()).device, None
    with unquantized(learner.model), chunked(learner.model):
        for chosen in batches([len(sample.ids) for sample in samples], tokens):
            one = micro(collate(samples, chosen, pad, WIDTHS))
            hidden = learner.hidden_states(one.ids.to(device), one.places.to(device)).cpu()
            if kept is None:
                kept = _space(starts[-1], hidden, folder)
            sizes = [starts[i + 1] - starts[i] for i in chosen]
            for i, part in zip(chosen, hidden.split(sizes), strict=True):
                kept[starts[i] : starts[i + 1]] = part
    assert kept is not None
    with whole(learner):
        return Teacher(kept, learner.head().detach().to(kept.dtype).clone(), starts)


def _space(rows: int, like: Tensor, folder: Path | None) -> Tensor:
    """Room for so many rows of hidden states in a file that is mapped into memory."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        count = rows * like.shape[1]
        mapped = torch.from_file(file.name, shared=True, size=count, dtype=like.dtype)
    return mapped.view(rows, like.shape[1])
