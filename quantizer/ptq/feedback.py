"""Round weights with error feedback: what rounding does to one column is made up for in the columns after it.

  minimize sum over tokens of |(Q - W) x|^2 = trace((Q - W) H (Q - W)^T),    H = X^T X

Column by column, the error of the rounded one is spread over those that are still to be rounded, as H says they can
make up for it (GPTQ, arXiv 2210.17323). Columns with the largest inputs come first. The block scales are found before
and stay, so that the bytes are plain NVFP4.

With a base, tokens count by how much the fine-tune changes the layer's output there, |D x|^2 for D = W - base, so that
the error is small where the fine-tune acts:

  H = sum over tokens of (1 - share + share * |D x|^2 / mean over the batch) * x x^T
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from quantizer.checkpoint.source import Source
from quantizer.core.errors import SourceError
from quantizer.layers.attach import refresh_weight_amax
from quantizer.layers.fused import fused_groups
from quantizer.layers.linear import SERVED_DTYPE, NVFP4Linear, nvfp4_layers
from quantizer.nvfp4 import blocks, grid
from quantizer.ptq.calibrate import InputStats, Weigh

COLUMNS: Final = 128
"""Columns whose errors are spread at once over all that come after them."""
VALUES: Final = tuple(sorted({sign * size for sign in (-1.0, 1.0) for size in grid.MAGNITUDES}))
"""What a code can say. Which of two equally near ones is taken does not matter here."""


@torch.no_grad()
def round_with_feedback(module: nn.Module, seen: Mapping[str, InputStats], damping: float) -> None:
    """Replace the weights of every NVFP4 layer by rounded ones, under its block scales.

    seen: from `watch`, with Gram matrices. Layers that read the same tensor are rounded as one matrix. A layer that nothing
    was seen of, as an expert that no token chose, keeps its weights, which are rounded to the nearest values.
    """
    for layers in reading_the_same(nvfp4_layers(module), seen):
        record = seen[next(iter(layers))]
        assert record.gram is not None
        steps = [blocks.step(layer.block_scale(), layer.tensor_scale()) for layer in layers.values()]
        weights = [layer.weight.to(SERVED_DTYPE).float() for layer in layers.values()]
        rounded = fed_back(torch.cat(weights), torch.cat(steps), record.gram, damping)
        for layer, part in zip(layers.values(), rounded.split([len(one) for one in weights]), strict=True):
            _keep(layer, part)


@torch.no_grad()
def deltas_of(module: nn.Module, base: Source, prefix: str) -> dict[str, Tensor]:
    """The change of every NVFP4 layer's weight since the base, by name.

    prefix: the module's name in the model, with a dot at the end. Raises SourceError if the base lacks a layer, or has it
    in another shape.
    """
    return {
        name: _delta(layer, base, f"{prefix}{name}.weight") for name, layer in nvfp4_layers(module).items()
    }


def weigh_by_delta(deltas: Mapping[str, Tensor], share: float) -> Weigh:
    """Weights of tokens by what a fine-tune changes of a layer's output, for `watch`. deltas: from `deltas_of`."""
    groups = {name: group for group in fused_groups(deltas) for name in group}

    def weigh(name: str, tokens: Tensor) -> Tensor:
        changed = [tokens @ deltas[member].T for member in groups.get(name, (name,))]
        size = sum(part.float().square().sum(dim=-1) for part in changed)
        assert isinstance(size, Tensor)
        mean = size.mean()
        return 1 - share + share * torch.where(mean > 0, size / mean, 1.0)

    return weigh


@torch.no_grad()
def strengthen(module: nn.Module, deltas: Mapping[str, Tensor], strength: float) -> None:
    """Make a fine-tune's change of the NVFP4 layers so many times as large."""
    for name, layer in nvfp4_layers(module).items():
        layer.weight.copy_(layer.weight.float() + (strength - 1) * deltas[name].float())
    refresh_weight_amax(module)


def _delta(layer: NVFP4Linear, base: Source, name: str) -> Tensor:
    stored = base.names.get(name, name)
    entry = base.folder.tensors.get(stored)
    if entry is None or tuple(entry.shape) != tuple(layer.weight.shape):
        found = list(entry.shape) if entry else "missing"
        raise SourceError(f"{base.path}: {name} is {found}, and {list(layer.weight.shape)} in the fine-tune")
    return layer.weight - base.folder.copy(stored, layer.weight.device, layer.weight.dtype)


def reading_the_same(
    layers: Mapping[str, NVFP4Linear], seen: Mapping[str, InputStats]
) -> list[dict[str, NVFP4Linear]]:
    """The layers that have a record, those together that share one."""
    found: dict[int, dict[str, NVFP4Linear]] = {}
    for name, layer in ((name, layer) for name, layer in layers.items() if name in seen):
        found.setdefault(id(seen[name]), {})[name] = layer
    return list(found.values())


@torch.no_grad()
def fed_back(weight: Tensor, step: Tensor, gram: Tensor, damping: float) -> Tensor:
    """The rounded weight: float32 [out, in].

    weight: float32 [out, in]. step: float32 [out, in / 16], the values of code 1. gram: float32 [in, in]. damping: added
    to the diagonal of the Gram matrix, as a share of its mean.
    """
    order = gram.diagonal().argsort(descending=True)
    factor = _factor(gram[order][:, order], damping)
    factor /= factor.diagonal().clone().unsqueeze(1)
    # Transposed, so that a column is contiguous: a GPU is kept busy by few kernels a column.
    left = weight.T[order].contiguous()
    steps = step.T.repeat_interleave(blocks.BLOCK, dim=0)[order]
    made = torch.empty_like(left)
    for first in range(0, len(left), COLUMNS):
        some = slice(first, min(first + COLUMNS, len(left)))
        error = _columns(left[some], steps[some], factor[some, some], made[some])
        left[some.stop :].addmm_(factor[some, some.stop :].T, error, alpha=-1)
    return torch.empty_like(made).index_copy_(0, order, made).T.contiguous()


def _columns(left: Tensor, steps: Tensor, factor: Tensor, made: Tensor) -> Tensor:
    """Round some columns one after the other into `made`. Returns their errors. All [columns, out]; `left` is used up."""
    values = torch.tensor(VALUES, device=left.device)
    borders = (values[1:] + values[:-1]) / 2
    error = torch.empty_like(left)
    for i in range(len(left)):
        place = torch.bucketize(left[i] / steps[i], borders, out_int32=True)
        torch.mul(values.index_select(0, place), steps[i], out=made[i])
        torch.sub(left[i], made[i], out=error[i])
        left[i + 1 :].addr_(factor[i, i + 1 :], error[i], alpha=-1)
    return error


def _factor(gram: Tensor, damping: float) -> Tensor:
    """The upper Cholesky factor of the inverse of a damped Gram matrix: float32 [in, in]."""
    exact = gram.double()
    exact.diagonal().add_(damping * exact.diagonal().mean().clamp(min=torch.finfo(torch.float32).tiny))
    lower, bad = torch.linalg.cholesky_ex(exact)
    if bad:
        raise SourceError(f"feedback: the inputs do not vary enough for damping = {damping:g}; raise it")
    upper, bad = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
    if bad:
        raise SourceError(f"feedback: the inputs do not vary enough for damping = {damping:g}; raise it")
    return upper.float()


def _keep(layer: NVFP4Linear, rounded: Tensor) -> None:
    """Make rounded values a layer's weight. In BF16 they are off by far less than half a gap, so they round to
    themselves under the same scales."""
    layer.fix_scales(layer.block_scale())
    layer.weight.copy_(rounded)
