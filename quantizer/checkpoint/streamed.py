"""A model whose matrices stay in their folder until they are needed.

The embedding reads only the rows of the requested tokens, and the output matrix is applied in slices of the vocabulary. Decoder
layers are on the meta device until `quantizer.checkpoint.source.fill` reads them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.checkpoint.source import Source, fill, skeleton
from quantizer.verify.folder import Folder, pinned

EMBEDDING: Final = "model.embed_tokens"
HEAD: Final = "lm_head"
HEAD_ROWS: Final = 8192
"""Rows of the output matrix that are on the device at a time."""


def open_streamed(source: Source, device: str) -> nn.Module:
    """The text model of a folder without the weights of its decoder layers. Raises SourceError as `skeleton`."""
    return stream(skeleton(source), source.folder, source.names, device)


def stream(model: nn.Module, folder: Folder, names: Mapping[str, str], device: str) -> nn.Module:
    """Fill a skeleton except its decoder layers. names: a parameter's name to its name in the folder."""
    embedding = names[f"{EMBEDDING}.weight"]
    model.set_submodule(EMBEDDING, StreamedRows(model.get_submodule(EMBEDDING), folder, embedding, device))
    head = names.get(f"{HEAD}.weight", embedding)
    model.set_submodule(HEAD, StreamedHead(model.get_submodule(HEAD), folder, head, device))
    for name, part in model.get_submodule("model").named_children():
        if name not in ("layers", "embed_tokens"):
            fill(part, folder, names, device, f"model.{name}.")
    return model


class _Streamed(nn.Module):
    """A matrix in a folder. weight: on the meta device, for its shape, its type and its name."""

    weight: Tensor

    def __init__(self, own: nn.Module, folder: Folder, name: str, device: str) -> None:
        super().__init__()
        self.register_parameter("weight", own.get_parameter("weight"))
        self.folder, self.name, self.device = folder, name, device
        self.scale: Tensor | None = getattr(own, "embed_scale", None)  # Gemma's embedding multiplies by it

    def parts(self, rows: int) -> Iterator[tuple[Any, Tensor]]:
        """The matrix in slices of so many rows, in the model's type, on the CPU."""
        for place, part in self.folder.parts(self.name, rows=rows):
            yield place, part.to(self.weight.dtype)


class StreamedRows(_Streamed):
    """An embedding that reads only the rows of the requested tokens."""

    def forward(self, ids: Tensor) -> Tensor:
        """int64 [...] to [..., width]."""
        wanted, places = ids.unique(return_inverse=True)
        sought = wanted.cpu()
        found = []
        for rows, part in self.parts(HEAD_ROWS):
            found.append(part[sought[(sought >= rows.start) & (sought < rows.stop)] - rows.start])
            if rows.stop > sought[-1]:
                break
        rows = F.embedding(places, torch.cat(found).to(self.device))
        return rows if self.scale is None else rows * self.scale.to(rows.device, rows.dtype)


class StreamedHead(_Streamed):
    """An output matrix that is applied in slices of the vocabulary."""

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., width] to [..., vocabulary], for few tokens only: the result is as wide as the vocabulary."""
        return torch.cat([F.linear(hidden, part) for part in head_parts(self)], dim=-1)


def head_parts(head: nn.Module) -> Iterator[Tensor]:
    """The rows of an output matrix on their device, HEAD_ROWS at a time."""
    if isinstance(head, StreamedHead):
        for _, part in head.parts(HEAD_ROWS):
            yield pinned(part, torch.device(head.device)).to(head.device, non_blocking=True)
    else:
        yield from head.get_parameter("weight").detach().split(HEAD_ROWS)
