"""Linear layers in NVFP4 that compute as their export will, and can be trained: y = fake(x) @ fake(bf16(W))^T + b.

W is the master weight, in any float type, rounded to BF16 first, because that is what the export packs. Gradients pass the
rounding unchanged. Three kinds of scales, whose types do not change with the model's:

    weight_amax   float32 []          sets the weight's tensor scale: amax / (6 * norm)
    input_amax    float32 []          the same for inputs; their block scales are computed from each input
    block scales  [out, in / 16]      dynamic: from the current weight
                                      static: `weight_scale`, float8_e4m3fn, found by a search
                                      learned: `block_amax`, a float32 parameter (LSQ, arXiv 1902.08153)

A training loop calls `hold_weights(model)` after each optimizer step, so that a weight is rounded once a step, and
`drop_weights(model)` at the end. Learned scales cannot be held.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.nvfp4 import blocks, fake
from quantizer.nvfp4.blocks import BLOCK, Nvfp4Tensor
from quantizer.nvfp4.grid import E2M1_MAX

SERVED_DTYPE: Final = torch.bfloat16
"""The type that weights are rounded to before they are packed, and that servers compute in."""
_EXACT: Final = ("weight_amax", "input_amax", "weight_scale", "block_amax")


class NVFP4Linear(nn.Linear):
    """A layer in NVFP4 in the place of an `nn.Linear`, with the same parameters. `active` false makes it a plain layer.
    weight_only: inputs are not rounded (W4A16). fit: how close rounding kept to weights that it has replaced."""

    weight_amax: Tensor
    input_amax: Tensor
    weight_scale: Tensor | None
    block_amax: nn.Parameter | None
    held: Tensor | None

    def __init__(self, linear: nn.Linear, norm: float = blocks.E4M3_MAX, weight_only: bool = False) -> None:
        """Raises ValueError if the rows of the weight are not whole blocks of 16."""
        if linear.in_features % BLOCK:
            raise ValueError(f"{linear.in_features} input columns are not whole blocks of {BLOCK}")
        bias = linear.bias is not None
        super().__init__(linear.in_features, linear.out_features, bias=bias, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.active, self.norm, self.weight_only = True, norm, weight_only
        self.fit: Any = None
        self.training = linear.training
        nothing = torch.zeros((), device=linear.weight.device)
        self.register_buffer("weight_amax", nothing)
        self.register_buffer("input_amax", nothing.clone())
        self.register_buffer("weight_scale", None)
        self.register_parameter("block_amax", None)
        self.register_buffer("held", None, persistent=False)
        self.weight_amax = self.largest_weight()

    @torch.no_grad()
    def largest_weight(self) -> Tensor:
        """The largest magnitude of the weight as it would be packed: float32 []."""
        return self.weight.abs().amax().to(SERVED_DTYPE).float()

    def forward(self, x: Tensor) -> Tensor:
        """float [..., in] to [..., out], in x's type."""
        if not self.active:
            return F.linear(x, self.weight, self.bias)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(self.fake_input(x), self.fake_weight().to(x.dtype), bias)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """As in torch, except that `model.to(bfloat16)` must not round a scale."""
        before = {name: tensor.data for name in _EXACT if (tensor := getattr(self, name, None)) is not None}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch's
        for name, tensor in before.items():
            moved = getattr(self, name)
            if moved.dtype != tensor.dtype:
                moved.data = tensor.to(moved.device)
        return self

    def tensor_scale(self) -> Tensor:
        """The tensor scale of the weight: float32 []."""
        return blocks.tensor_scale(self.weight_amax, self.norm)

    @torch.no_grad()
    def block_scale(self) -> Tensor:
        """The block scales of the weight as they would be exported: float8_e4m3fn [out, in / 16]."""
        if self.weight_scale is not None:
            return self.weight_scale
        amax = (
            self.block_amax
            if self.block_amax is not None
            else blocks.block_amax(self.weight.to(SERVED_DTYPE))
        )
        return blocks.block_scale(amax, self.tensor_scale())

    def fix_scales(self, scale: Tensor | None) -> None:
        """Use these block scales from now on, float8_e4m3fn [out, in / 16]; None restores those computed from the
        weight."""
        self.block_amax = None
        if scale is None or self.weight_scale is None:
            self.weight_scale = scale
        else:  # in place, so that a compiled or captured graph reads the new ones
            self.weight_scale.copy_(scale)

    def learn_scales(self) -> None:
        """Turn the block scales into a parameter, starting from their current values."""
        amax = self.block_scale().float() * (E2M1_MAX * self.tensor_scale())
        self.weight_scale = None
        self.block_amax = nn.Parameter(amax)

    @torch.no_grad()
    def quantize(self) -> Nvfp4Tensor:
        """The weight in NVFP4, as exported. Raises ValueError if it is not finite."""
        return blocks.quantize(self.weight.to(SERVED_DTYPE), self.tensor_scale(), self.block_scale())

    def fake_weight(self) -> Tensor:
        """The values of the exported weight: BF16 [out, in], with a gradient to the master weight or to the scales."""
        if self.held is not None:
            return _Held.apply(self.weight, self.held)  # type: ignore[no-untyped-call]  # torch's
        weight = self.weight.to(SERVED_DTYPE)
        if self.block_amax is None:
            return fake.fake_static(weight, self.block_scale(), self.tensor_scale())
        return fake.fake_learned(weight, self.block_amax, self.tensor_scale())

    def fake_input(self, x: Tensor) -> Tensor:
        return x if self.weight_only else fake.fake_dynamic(x, self.input_amax)


def rounded(weight: Tensor, amax: Tensor, scale: Tensor | None, norm: float) -> Tensor:
    """`NVFP4Linear.fake_weight` of dynamic and static scales without a gradient, also for a compiler."""
    weight, second = weight.to(SERVED_DTYPE), blocks.tensor_scale(amax, norm)
    if scale is None:
        scale = blocks.block_scale(blocks.block_amax(weight), second)
    return blocks.round_blocks(weight, blocks.step(scale, second))


class _Held(torch.autograd.Function):
    """A rounded weight whose gradient goes to the master weight, in the master's own type: micro-batches accumulate
    there."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, held: Tensor) -> Tensor:
        ctx.dtype = weight.dtype
        return held.view_as(held)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.to(ctx.dtype), None


def nvfp4_layers(model: nn.Module) -> dict[str, NVFP4Linear]:
    """The layers in NVFP4 of a model by name, in the model's order."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, NVFP4Linear)}


@torch.no_grad()
def hold_weights(model: nn.Module, rounded: Callable[..., Tensor] = rounded) -> None:
    """Round every weight once for all forward passes until the next call; not those with learned scales. Call it after each
    optimizer step. `rounded` may be compiled."""
    for layer in nvfp4_layers(model).values():
        if layer.block_amax is None:
            new = rounded(layer.weight, layer.weight_amax, layer.weight_scale, layer.norm)
            # In place, so that a compiled or captured graph reads the new one.
            layer.held = new.clone() if layer.held is None else layer.held.copy_(new)


def drop_weights(model: nn.Module) -> None:
    """Discard the held weights: from now on every forward pass rounds again."""
    for layer in nvfp4_layers(model).values():
        layer.held = None


@contextmanager
def unquantized(model: nn.Module) -> Iterator[None]:
    """Within a `with` block, the model computes with its master weights and does not round inputs."""
    layers = [layer for layer in nvfp4_layers(model).values() if layer.active]
    for layer in layers:
        layer.active = False
    try:
        yield
    finally:
        for layer in layers:
            layer.active = True
