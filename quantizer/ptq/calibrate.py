"""Calibration: one pass over the data through the unquantized model, recording the inputs of the quantized layers.

Layers that read the same tensor share one record. A search computes from its Gram matrix X^T X, float32 [in, in], the error that a
changed weight causes at a layer's output, without reading the data again:

    sum over tokens of |dW x|^2 = trace(dW (X^T X) dW^T)

Padding is ignored. A Gram matrix costs as much as a layer, so it is summed only where a search needs it.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from quantizer.core.batch import Batch
from quantizer.core.decoder import hidden_states
from quantizer.core.errors import DataError
from quantizer.layers.attach import share_scales
from quantizer.layers.deltanet import chunked
from quantizer.layers.experts import SeparateExperts
from quantizer.layers.linear import nvfp4_layers, unquantized

ROWS: Final = 128


@dataclass(slots=True)
class InputStats:
    """Statistics of everything that a layer reads: amax and total magnitude of each channel, float32 [in]. rows: ROWS tokens of
    each batch, where there is a Gram matrix.

    The total adds up each batch's mean in the input's type, times its number of tokens, so that the mean equals ModelOpt's to the
    bit with batches of similar size: a scale that differs in the last bit changes the rounding of many weights.
    """

    amax: Tensor
    total: Tensor
    gram: Tensor | None
    tokens: int = 0
    rows: list[Tensor] = field(default_factory=list)

    @property
    def mean(self) -> Tensor:
        """The mean magnitude of each channel: float32 [in]."""
        return self.total / max(1, self.tokens)

    def add(self, x: Tensor, weight: Tensor | None = None) -> None:
        """Add tokens. x: float [tokens, in]. weight: float32 [tokens], of each token in the Gram matrix; by default 1."""
        if not len(x):
            return
        size = x.abs()
        self.amax = torch.maximum(self.amax, size.amax(dim=0).float())
        self.total += size.mean(dim=0).float() * len(x)
        self.tokens += len(x)
        if self.gram is not None:
            self.rows.append(x[:: max(1, len(x) // ROWS)].clone())
            self.gram += gram(x if weight is None else x * weight.sqrt().unsqueeze(1).to(x.dtype))


def gram(x: Tensor) -> Tensor:
    """X^T X: float [tokens, in] to float32 [in, in]; a GPU multiplies 16-bit numbers and sums in float32, which is exact."""
    if x.device.type != "cpu" and x.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(x.T, x, out_dtype=torch.float32)
    x = x.float()
    return x.T @ x


Weigh = Callable[[str, Tensor], Tensor]
"""From a layer's name and tokens that it reads, float [tokens, in], to their weights in its Gram matrix: float32 [tokens]."""


@dataclass(slots=True)
class _Watch:
    """Hooks on layers. A layer that reads the same tensor as the layer before it shares that layer's record."""

    gram: Container[str]
    weigh: Weigh | None = None
    experts: Container[str] = ()  # layers that read some of the tokens only, and no padding
    seen: dict[str, InputStats] = field(default_factory=dict)
    kept: Tensor | None = None  # positions of a batch's tokens; None if there is no padding
    last: tuple[Tensor, InputStats] | None = None

    def hook(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(layer: nn.Module, args: tuple[Any, ...]) -> None:
            x: Tensor = args[0]
            if self.last and x is self.last[0] and self.seen.get(name, self.last[1]) is self.last[1]:
                self._join(name, x, self.last[1])
                return
            if name not in self.seen:
                self.seen[name] = self._nothing(name, x)
            tokens = self._tokens(name, x)
            self.seen[name].add(tokens, self.weigh(name, tokens) if self.weigh else None)
            self.last = (x, self.seen[name])

        return look

    def _join(self, name: str, x: Tensor, record: InputStats) -> None:
        """Add a layer to the record of the layer before it; if it is the first that needs the Gram matrix, start
        that."""
        self.seen[name] = record
        if record.gram is None and name in self.gram:
            tokens = self._tokens(name, x)
            if record.tokens == len(tokens):  # otherwise earlier batches would be missing
                record.gram, record.rows = gram(tokens), [tokens[:: max(1, len(tokens) // ROWS)].clone()]

    def skip_padding(
        self, experts: nn.Module, args: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Before experts run: padding is for none of them."""
        if self.kept is None:
            return None
        hidden, chosen, weights = args
        unrouted = torch.full_like(chosen, -1)
        unrouted[self.kept] = chosen[self.kept]
        return hidden, unrouted, weights

    def _tokens(self, name: str, x: Tensor) -> Tensor:
        """Remove padding: […, in] to [tokens, in]."""
        tokens = x.flatten(0, -2)
        return tokens if self.kept is None or name in self.experts else tokens.index_select(0, self.kept)

    def _nothing(self, name: str, x: Tensor) -> InputStats:
        width = x.shape[-1]
        zeros = torch.zeros(width, device=x.device)
        wanted = torch.zeros(width, width, device=x.device) if name in self.gram else None
        return InputStats(zeros, zeros.clone(), wanted)


@torch.no_grad()
def observe(model: nn.Module, batches: Iterable[Batch], gram: Container[str] = ()) -> dict[str, InputStats]:
    """Run data through the unquantized model and record the inputs of the quantized layers, by layer name. Raises DataError."""
    device = next(model.parameters()).device

    def run() -> Iterator[Batch]:
        for batch in batches:
            batch = batch.to(device)
            yield batch
            hidden_states(model, batch)

    return watch(model, run(), gram)


@torch.no_grad()
def watch(
    module: nn.Module,
    run: Iterable[Batch],
    gram: Container[str] = (),
    prefix: str = "",
    weigh: Weigh | None = None,
) -> dict[str, InputStats]:
    """Record the inputs of a module's quantized layers while `run` runs data through it: it yields each batch before that.

    `gram`: layers whose Gram matrix is needed; `weigh`: the weight of each token; `prefix`: of the names in errors.
    """
    routed = {name: m for name, m in module.named_modules() if isinstance(m, SeparateExperts)}
    layers = nvfp4_layers(module)
    inside = {n for n in layers if any(n.startswith(f"{name}.") for name in routed)}
    watching = _Watch(gram, weigh, inside)
    hooks = [experts.register_forward_pre_hook(watching.skip_padding) for experts in routed.values()]
    hooks += [layer.register_forward_pre_hook(watching.hook(n)) for n, layer in layers.items()]
    try:
        with unquantized(module), chunked(module):
            for batch in run:
                real = batch.attention.flatten()
                watching.kept = None if bool(real.all()) else real.nonzero().squeeze(1)
                watching.last = None
    finally:
        for hook in hooks:
            hook.remove()
    if not watching.seen:
        raise DataError("there is no conversation to calibrate with")
    for name, seen in watching.seen.items():
        if not torch.isfinite(seen.amax).all():
            raise DataError(f"{prefix}{name}: its input is NaN or infinite on this data; the model overflows")
    return watching.seen


@torch.no_grad()
def set_input_amax(model: nn.Module, seen: dict[str, InputStats], prefix: str = "") -> None:
    """Set the input amax of every layer from the recorded statistics, and share it among fused layers. An expert that no
    token of the data chose gets that of the other experts. prefix: of the names in errors."""
    layers = nvfp4_layers(model)
    for name, layer in layers.items():
        if name in seen and seen[name].tokens:
            layer.input_amax.copy_(seen[name].amax.amax())
        else:
            layer.input_amax.zero_()
    share_scales(model)
    for name, layer in layers.items():
        if name not in seen and not layer.input_amax > 0:
            raise DataError(
                f"{prefix}{name}: no token of the data went through it; calibrate with more conversations"
            )


def calibrate(model: nn.Module, batches: Iterable[Batch]) -> dict[str, InputStats]:
    """Run `observe` and `set_input_amax`: the largest input, as ModelOpt's "max" calibration. Returns the
    statistics."""
    seen = observe(model, batches)
    set_input_amax(model, seen)
    return seen


def trace_error(change: Tensor, seen: InputStats) -> Tensor:
    """trace(dW (X^T X) dW^T) for a change of the weights, float32 [out, in]: float32 []."""
    if seen.gram is None:
        raise ValueError("no Gram matrix was recorded")
    return ((change @ seen.gram) * change).sum()
