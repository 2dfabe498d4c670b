"""Round weights with error feedback: what rounding does to one column is made up for in the columns after it.

  minimize sum over tokens of |(Q - W) x|^2 = trace((Q - W) H (Q - W)^T),    H = X^T X

Column by column, what rounding took from one is spread over those that are still to be rounded, as H says they can
make up for it (GPTQ, arXiv 2210.17323). With H = R D R^T, where R is upper and has ones on its diagonal, column k is
rounded after sum over j < k of (W_j - Q_j) R_jk is added to it. That is the same rounding without H's inverse (LDLQ, arXiv
2307.13304, theorem 6). Columns with the largest inputs come first. The block scales are found before and stay, so that
the bytes are plain NVFP4.

With a base, tokens count by how much the fine-tune changes the layer's output there, |D x|^2 for D = W - base, so that
the error is small where the fine-tune acts:

  H = sum over tokens of (1 - share + share * |D x|^2 / mean over the batch) * x x^T
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from quantizer.checkpoint.source import Source
from quantizer.core.cost import Cost
from quantizer.core.errors import SourceError
from quantizer.layers.fused import fused_groups
from quantizer.layers.linear import SERVED_DTYPE, NVFP4Linear, nvfp4_layers
from quantizer.nvfp4 import blocks, grid
from quantizer.ptq.calibrate import InputStats, Weigh
from quantizer.verify import values

COLUMNS: Final = 128
"""Columns whose errors are spread at once over all that come after them."""


@torch.no_grad()
def round_with_feedback(
    module: nn.Module, seen: Mapping[str, InputStats], damping: float, cost: Cost
) -> None:
    """Replace the weights of every NVFP4 layer by rounded ones, under its block scales; `seen` has Gram matrices.

    Layers that read the same tensor are rounded as one matrix; an expert that no token chose keeps its weights.
    """
    for layers in reading_the_same(nvfp4_layers(module), seen):
        record = seen[next(iter(layers))]
        assert record.gram is not None
        with cost.part("factor"):
            factor = factor_of(record.gram, damping)
        with cost.part("feedback"):
            steps = [blocks.step(layer.block_scale(), layer.tensor_scale()) for layer in layers.values()]
            weights = [layer.weight.to(SERVED_DTYPE).float() for layer in layers.values()]
            rounded = fed_back(torch.cat(weights), torch.cat(steps), factor)
            parts = rounded.split([len(one) for one in weights])
            for layer, part, before in zip(layers.values(), parts, weights, strict=True):
                _keep(layer, part)
                layer.fit = values.compare_weights(layer.quantize(), before)


@torch.no_grad()
def deltas_of(module: nn.Module, base: Source, prefix: str) -> dict[str, Tensor]:
    """The change of every NVFP4 layer's weight since the base, by name. Raises SourceError if the base does not fit."""
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


class Factor(NamedTuple):
    """H = R D R^T of what layers read, columns with the largest inputs first.

    order: int64 [in], the columns. upper: float32 [in, in], R, with ones on its diagonal.
    """

    order: Tensor
    upper: Tensor


@torch.no_grad()
def factor_of(gram: Tensor, damping: float) -> Factor:
    """The factor of a Gram matrix with `damping` of its mean added to its diagonal; in float64 where float32 does not do."""
    order = gram.diagonal().argsort(descending=True)
    back = order.flip(0)  # the upper factor is the lower one of the matrix read backwards
    for dtype in (torch.float32, torch.float64):
        damped = gram[back][:, back].to(dtype)
        damped.diagonal().add_(damping * damped.diagonal().mean().clamp(min=torch.finfo(torch.float32).tiny))
        lower, bad = torch.linalg.cholesky_ex(damped)
        if not bad:
            upper = lower.float().flip(0, 1).contiguous()
            return Factor(order, upper.div_(upper.diagonal().clone()))
    raise SourceError(f"feedback: the inputs do not vary enough for damping = {damping:g}; raise it")


@torch.no_grad()
def fed_back(weight: Tensor, step: Tensor, factor: Factor) -> Tensor:
    """The rounded weight, float32 [out, in]; `step`: the values of code 1, [out, in / 16]."""
    order, upper = factor
    # Transposed, so that a column is contiguous.
    whole, steps = weight.T[order].contiguous(), step.T.contiguous()
    left, made = whole.clone(), torch.empty_like(whole)
    for first in range(0, len(left), COLUMNS):
        some = slice(first, min(first + COLUMNS, len(left)))
        error = round_panel(
            left[some], whole[some], steps[order[some] // blocks.BLOCK], upper[some, some], made[some]
        )
        left[some.stop :].addmm_(upper[some, some.stop :].T, error)
    return torch.empty_like(made).index_copy_(0, order, made).T.contiguous()


def round_panel(left: Tensor, whole: Tensor, steps: Tensor, upper: Tensor, made: Tensor) -> Tensor:
    """Round some columns one after the other into `made`; what they lack. All float32 [columns, out], contiguous.

    `left`: with the errors of earlier panels made up for; `whole`: as they were.
    """
    points, borders = (torch.tensor(some, device=left.device) for some in (grid.VALUES, grid.BORDERS))
    error, spread = torch.empty_like(left), torch.empty_like(left)
    for i in range(len(left)):
        place = torch.bucketize(left[i] / steps[i], borders, out_int32=True)
        torch.mul(points.index_select(0, place), steps[i], out=made[i])
        torch.sub(whole[i], made[i], out=error[i])
        torch.mul(upper[i, i + 1 :, None], error[i], out=spread[i + 1 :])
        left[i + 1 :] += spread[i + 1 :]
    return error


def _keep(layer: NVFP4Linear, rounded: Tensor) -> None:
    """Make rounded values a layer's weight. In BF16 they are off by far less than half a gap, so they round to
    themselves under the same scales."""
    layer.fix_scales(layer.block_scale())
    layer.weight.copy_(rounded)
