"""Compiles blocks, and rounds inputs once for layers that share them. The results equal those of eager mode.

Inductor's optimizations that would change what is served are off: divisions are rounded as IEEE 754 requires (NVFP4's ties are
common in BF16), and a sum that eager mode rounds to BF16 before it is quantized is rounded here too.
"""

from functools import partial
from typing import Any, Final

import torch
from torch import nn

from quantizer.core.decoder import decoder_layers
from quantizer.layers.deltanet import compile_around, deltanets
from quantizer.layers.fused import fused_groups
from quantizer.layers.linear import hold_weights, nvfp4_layers, rounded
from quantizer.layers.selection import DELTANET

EXACT: Final[dict[str, Any]] = {"emulate_precision_casts": True, "eager_numerics.division_rounding": True}
"""Inductor's options for eager numerics."""
KEPT: Final = 0.7
"""Of what a block could keep for its backward pass. The rest is cheap to make again: roundings, norms, products of two
tensors."""


def compile_blocks(model: nn.Module) -> None:
    """Compile every decoder layer, but for the recurrence of a DeltaNet, which computes by chunks already; the first forward
    then takes longer, once for all of them."""
    import torch._dynamo
    import torch._functorch.config

    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    torch._functorch.config.activation_memory_budget = KEPT
    for block in decoder_layers(model):
        recurrent = deltanets(block)
        parts = [part for name, part in block.named_children() if name != DELTANET] if recurrent else [block]
        for part in parts:
            part.compile(options=EXACT)
        for layer in recurrent:
            compile_around(layer, EXACT)


def recompute(model: Any, kept: int = 0) -> None:
    """Keep no activations inside a decoder layer, and compute them again for the backward pass. kept: the last so many
    layers keep theirs, which are the first that backward frees."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    blocks: list[Any] = decoder_layers(model)
    for block in blocks[max(0, len(blocks) - kept) :]:
        block.gradient_checkpointing = False


def eager() -> Any:
    """A `with` block in which compiled blocks run in eager mode, for a pass or two that is not worth compiling."""
    return torch.compiler.set_stance("force_eager")


def share_inputs(model: nn.Module) -> None:
    """Give layers that a server fuses one common `input_amax`, so that the compiler sees that their inputs are rounded
    equally, and rounds them once. Call it when the model is on its final device."""
    layers = nvfp4_layers(model)
    for group in fused_groups(layers):
        for name in group[1:]:
            layers[name].input_amax = layers[group[0]].input_amax


def compiled_hold() -> Any:
    """`quantizer.layers.linear.hold_weights` with compiled kernels."""
    return partial(hold_weights, rounded=torch.compile(rounded, options=EXACT))
