"""A batch of token rows: the input that calibration, search, training and parity checks share."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

IGNORE: Final = -100
"""The label of a position that is neither trained on nor scored."""


class Batch(NamedTuple):
    """Rows of tokens, padded on the right.

    ids: int64 [rows, tokens]. attention: bool [rows, tokens], false at padding. labels: int64 [rows, tokens], the token itself
    where the assistant wrote it, IGNORE elsewhere; not shifted: logits at t - 1 predict labels[:, t].
    """

    ids: Tensor
    labels: Tensor
    attention: Tensor

    def to(self, device: torch.device | str) -> Batch:
        return Batch(*(to_device(tensor, device) for tensor in self))

    @property
    def loss_mask(self) -> Tensor:
        """Positions whose logits predict a token of the assistant: bool [rows, tokens - 1]."""
        return (self.labels[:, 1:] != IGNORE) & self.attention[:, 1:]


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy a tensor to a device; to a GPU through pinned memory, so that the copy overlaps with its work."""
    if torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
