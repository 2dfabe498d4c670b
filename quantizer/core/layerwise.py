"""Run batches through a causal language model one decoder layer at a time: all batches through the first layer, then the second.

Between two layers only hidden states are held, so a layer's weights are needed once. What a layer is called with besides
(masks, rotary embeddings) is recorded by running the model with stand-ins, so nothing here knows the architecture. Results are
those of running whole batches, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from quantizer.core.batch import Batch
from quantizer.core.decoder import decoder_layers, hidden_states, layers_name
from quantizer.core.errors import SourceError, first_line


class Layerwise:
    """Batches, on the device, on their way through the decoder layers of a model; a layer is needed only when `advance` runs it."""

    @torch.no_grad()
    def __init__(self, model: nn.Module, batches: Sequence[Batch]) -> None:
        self.model, self.batches = model, batches
        self.hidden: list[Tensor] = []
        self._calls: list[list[tuple[tuple[Any, ...], dict[str, Any]]]] = []
        for batch in batches:
            standins = self._run_standins(batch)
            self.hidden.append(standins[0].read)
            self._calls.append([(one.args, one.kwargs) for one in standins])

    @torch.no_grad()
    def output(self, index: int, number: int = 0) -> Tensor:
        """What a decoder layer makes of a batch that has come to it; the batch stays where it is."""
        args, kwargs = self._calls[number][index]
        out = decoder_layers(self.model)[index](self.hidden[number], *args, **kwargs)
        return out[0] if isinstance(out, tuple) else out

    def advance(self, index: int) -> Iterator[Batch]:
        """Run every batch through a decoder layer, yielding each one before it is run."""
        for number, batch in enumerate(self.batches):
            yield batch
            self.hidden[number] = self.output(index, number)

    @torch.no_grad()
    def finish(self, number: int) -> Tensor:
        """The last hidden states of a batch, as before the head, once it has passed every layer."""
        return self._run_standins(self.batches[number], self.hidden[number])[-1].result

    def _run_standins(self, batch: Batch, out: Tensor | None = None) -> list[_Standin]:
        layers = self.model.get_submodule(layers_name(self.model))
        assert isinstance(layers, nn.ModuleList)
        standins = [_Standin(out) for _ in layers]
        with _replaced(layers, standins):
            try:
                standins[-1].result = hidden_states(self.model, batch)
            except torch.OutOfMemoryError:
                raise
            except (IndexError, RuntimeError, ValueError) as error:
                raise SourceError(f"{self._unlike()} ({first_line(error)})") from error
        if standins[-1].result.shape[:2] != batch.ids.shape:
            raise SourceError(self._unlike())
        return standins

    def _unlike(self) -> str:
        """Why a model that hands tuples from layer to layer (GPT-J, Falcon, Bamba) is refused."""
        return f"{type(self.model).__name__}: its decoder layers exchange more than hidden states: such models cannot be quantized layer by layer"


class _Standin(nn.Module):
    """Takes the place of a decoder layer and remembers how it was called. out: what it returns; by default its input."""

    read: Tensor
    result: Tensor
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __init__(self, out: Tensor | None) -> None:
        super().__init__()
        self.out = out

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self.read, self.args, self.kwargs = hidden, args, kwargs
        return hidden if self.out is None else self.out


@contextmanager
def _replaced(layers: nn.ModuleList, others: Sequence[nn.Module]) -> Iterator[None]:
    own = list(layers)
    try:
        for index, other in enumerate(others):
            layers[index] = other
        yield
    finally:
        for index, module in enumerate(own):
            layers[index] = module
