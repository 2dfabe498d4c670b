"""What goes into the quantized layers: one pass over the data, with the model unquantized.

Layers that read the same tensor (q, k and v; gate and up; …) share one record, so the costly part of it, the Gram
matrix X^T X, is summed once for all of them. From it a search has the error that a changed weight makes at a layer's
output, summed over all tokens, without seeing a token again:

    sum over tokens of |dW x|^2 = trace(dW (X^T X) dW^T)

Padding is not looked at. Memory: a Gram matrix is float32 [in, in]; nothing else grows with the model. Its cost is that
of a layer as wide as long, for every token, so it is summed only for the layers that a search will ask.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from quantizer.core.batch import Batch, hidden_states
from quantizer.core.errors import DataError
from quantizer.layers.attach import tie
from quantizer.layers.linear import nvfp4_layers, unquantized


@dataclass(slots=True)
class Seen:
    """Of everything that a layer read. amax, total: float32 [in], the largest and the summed magnitude of each channel.
    tokens: how many. gram: float32 [in, in], X^T X, or None if it was not asked for.

    The sum is that of every batch's mean in the type that was read, times its tokens: with batches of like size the
    mean is ModelOpt's to the bit. That decides: rounding to four bits is chaotic, so that a scale with another last bit has
    another loss, and among near ties another alpha is the best."""

    amax: Tensor
    total: Tensor
    gram: Tensor | None
    tokens: int = 0

    @property
    def mean(self) -> Tensor:
        """The mean magnitude of each channel: float32 [in]."""
        return self.total / max(1, self.tokens)

    def add(self, x: Tensor) -> None:
        """x: float [tokens, in]."""
        if not len(x):
            return
        size = x.abs()
        self.amax = torch.maximum(self.amax, size.amax(dim=0).float())
        self.total += size.mean(dim=0).float() * len(x)
        self.tokens += len(x)
        if self.gram is not None:
            self.gram += gram(x)


def gram(x: Tensor) -> Tensor:
    """X^T X: float [tokens, in] to float32 [in, in]. A GPU's tensor cores take sixteen-bit numbers as they are and sum in
    float32, where the product of two is exact."""
    if x.device.type != "cpu" and x.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(x.T, x, out_dtype=torch.float32)
    x = x.float()
    return x.T @ x


@dataclass(slots=True)
class _Watch:
    """Hooks on layers. A layer that reads the very tensor that the layer before it read adds nothing and joins it."""

    gram: Container[str]
    seen: dict[str, Seen] = field(default_factory=dict)
    kept: Tensor | None = None  # places of a batch's tokens among all, None if there is no padding
    last: tuple[Tensor, Seen] | None = None

    def hook(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(layer: nn.Module, args: tuple[Any, ...]) -> None:
            x: Tensor = args[0]
            if self.last and x is self.last[0] and self.seen.get(name, self.last[1]) is self.last[1]:
                self._join(name, x, self.last[1])
                return
            if name not in self.seen:
                self.seen[name] = self._nothing(name, x)
            self.seen[name].add(self._tokens(x))
            self.last = (x, self.seen[name])

        return look

    def _join(self, name: str, x: Tensor, record: Seen) -> None:
        """One more reader of what was just recorded; if it is the first to want the Gram matrix, that begins here."""
        self.seen[name] = record
        if record.gram is None and name in self.gram:
            tokens = self._tokens(x)
            if record.tokens == len(tokens):  # else it would lack the batches before
                record.gram = gram(tokens)

    def _tokens(self, x: Tensor) -> Tensor:
        """[…, in] without padding: [tokens, in]."""
        tokens = x.flatten(0, -2)
        return tokens if self.kept is None else tokens.index_select(0, self.kept)

    def _nothing(self, name: str, x: Tensor) -> Seen:
        width = x.shape[-1]
        zeros = torch.zeros(width, device=x.device)
        wanted = torch.zeros(width, width, device=x.device) if name in self.gram else None
        return Seen(zeros, zeros.clone(), wanted)


@torch.no_grad()
def observe(model: nn.Module, batches: Iterable[Batch], gram: Container[str] = ()) -> dict[str, Seen]:
    """Run data through the unquantized model and record what the NVFP4 layers read, by their names.

    gram: the layers whose Gram matrix is wanted; those that read the same have it together. Raises DataError if there is
    no batch, or if a layer saw something that is not finite.
    """
    watch, device = _Watch(gram), next(model.parameters()).device
    hooks = [layer.register_forward_pre_hook(watch.hook(n)) for n, layer in nvfp4_layers(model).items()]
    try:
        with unquantized(model):
            for batch in batches:
                batch = batch.to(device)
                real = batch.attention.flatten()
                watch.kept = None if bool(real.all()) else real.nonzero().squeeze(1)
                hidden_states(model, batch)
                watch.last = None
    finally:
        for hook in hooks:
            hook.remove()
    if not watch.seen:
        raise DataError("there is no conversation to calibrate with")
    for name, seen in watch.seen.items():
        if not torch.isfinite(seen.amax).all():
            raise DataError(f"{name}: its input is NaN or infinite on this data; the model overflows")
    return watch.seen


@torch.no_grad()
def set_inputs(model: nn.Module, seen: dict[str, Seen]) -> None:
    """Set the inputs' amax of every layer from what was seen, and tie neighbours."""
    for name, layer in nvfp4_layers(model).items():
        _check_seen(name, seen)
        layer.input_amax.copy_(seen[name].amax.amax())
    tie(model)


def calibrate(model: nn.Module, batches: Iterable[Batch]) -> dict[str, Seen]:
    """`observe` and `set_inputs`: the largest input, as ModelOpt's "max" takes it. Returns what was seen."""
    seen = observe(model, batches)
    set_inputs(model, seen)
    return seen


def readers(seen: dict[str, Seen]) -> list[tuple[str, ...]]:
    """Names of layers that read the same, in the model's order."""
    found: dict[int, list[str]] = {}
    for name, one in seen.items():
        found.setdefault(id(one), []).append(name)
    return [tuple(names) for names in found.values()]


def _check_seen(name: str, seen: dict[str, Seen]) -> None:
    if name not in seen or not seen[name].tokens:
        raise DataError(f"{name}: no token of the data went through it; calibrate with more conversations")


def trace_error(change: Tensor, seen: Seen) -> Tensor:
    """trace(dW (X^T X) dW^T) for a change of the weights, float32 [out, in]: float32 []."""
    if seen.gram is None:
        raise ValueError("no Gram matrix was recorded")
    return ((change @ seen.gram) * change).sum()
