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
from quantizer.core.decoder import head, layers_name, name_of
from quantizer.verify.folder import Folder, pinned

HEAD_ROWS: Final = 8192
"""Rows of the output matrix that are on the device at a time."""


def open_streamed(source: Source, device: str) -> nn.Module:
    """The text model of a folder without the weights of its decoder layers. Raises SourceError as `skeleton`."""
    return stream(skeleton(source), source.folder, source.names, device)


def stream(model: Any, folder: Folder, names: Mapping[str, str], device: str) -> nn.Module:
    """Fill a skeleton except its decoder layers. names: a parameter's name to its name in the folder."""
    rows, last = model.get_input_embeddings(), head(model)
    first, final = name_of(model, rows), name_of(model, last)
    fill(model, folder, names, device, leave=(f"{layers_name(model)}.", f"{first}.weight", f"{final}.weight"))
    embedding = names[f"{first}.weight"]
    model.set_submodule(first, StreamedRows(rows, folder, embedding, device))
    matrix = names.get(f"{final}.weight", embedding)
    model.set_submodule(final, StreamedHead(last, folder, matrix, device))
    return model  # type: ignore[no-any-return]


class _Streamed(nn.Module):
    """A matrix in a folder. weight: on the meta device, for its shape, its type and its name."""

    weight: Tensor

    def __init__(self, own: nn.Module, folder: Folder, name: str, device: str) -> None:
        super().__init__()
        self.register_parameter("weight", own.get_parameter("weight"))
        self.folder, self.name, self.device = folder, name, device
        self.bias: Tensor | None = getattr(own, "bias", None)
        self.scale: Any = getattr(own, "embed_scale", None)  # Gemma's embedding multiplies by it

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
        return (
            rows
            if self.scale is None
            else rows * torch.as_tensor(self.scale, device=rows.device, dtype=rows.dtype)
        )


class StreamedHead(_Streamed):
    """An output matrix that is applied in slices of the vocabulary."""

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., width] to [..., vocabulary], for few tokens only: the result is as wide as the vocabulary."""
        logits = torch.cat([F.linear(hidden, part) for part in head_parts(self)], dim=-1)
        return logits if self.bias is None else logits + self.bias


def head_parts(own: nn.Module) -> Iterator[Tensor]:
    """The rows of an output matrix on their device, HEAD_ROWS at a time."""
    if isinstance(own, StreamedHead):
        for _, part in own.parts(HEAD_ROWS):
            yield pinned(part, torch.device(own.device)).to(own.device, non_blocking=True)
    else:
        yield from own.get_parameter("weight").detach().split(HEAD_ROWS)
