"""What goes through a model at once: the one shape that calibration, search, training and parity share."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

IGNORE: Final = -100
"""A label that nothing is learned from or scored at."""


class Batch(NamedTuple):
    """Rows of tokens, padded at the right.

    ids: int64 [rows, tokens]. labels: int64 [rows, tokens], the token itself where the assistant wrote it, IGNORE
    elsewhere; not shifted, so the logits that foretell labels[:, t] are those of position t - 1. attention: bool
    [rows, tokens], false at padding.
    """

    ids: Tensor
    labels: Tensor
    attention: Tensor

    def to(self, device: torch.device | str) -> Batch:
        return Batch(*(sent(tensor, device) for tensor in self))

    @property
    def foretelling(self) -> Tensor:
        """Positions whose logits foretell a token of the assistant's: bool [rows, tokens - 1]."""
        return (self.labels[:, 1:] != IGNORE) & self.attention[:, 1:]


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device. A GPU takes it from pinned memory and beside its work: out of any other memory a copy waits
    until all work before it is done, and the GPU then for the next kernels to be launched."""
    if torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def hidden_states(model: nn.Module, batch: Batch) -> Tensor:
    """The last hidden states of a causal language model, before its head: [rows, tokens, width].

    Without padding no mask is given, so that attention may take its fastest way.
    """
    mask = None if bool(batch.attention.all()) else batch.attention
    decoder = model.get_submodule("model")
    return decoder(input_ids=batch.ids, attention_mask=mask, use_cache=False).last_hidden_state


def assistant_logits(model: nn.Module, batch: Batch) -> Tensor:
    """Logits only where the assistant's next token is foretold: [tokens of the assistant, vocabulary].

    The logits of a whole batch would be the largest tensor of all by far.
    """
    hidden = hidden_states(model, batch)[:, :-1]
    return model.get_submodule("lm_head")(hidden[batch.foretelling])
