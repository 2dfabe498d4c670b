"""Check the numbers of a layer: its scales, its distance from the source, and what is left of a fine-tune; in slices of rows."""

from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from quantizer.nvfp4 import blocks, grid
from quantizer.nvfp4.blocks import Nvfp4Tensor
from quantizer.verify.report import CheckFinding, FineTuneDelta, RoundingStats

SLICE: Final = 2**17  # weights per slice: fits into a core's cache, three times as fast as 2^22
GPU_SLICE: Final = 2**24  # a kernel must be worth its launch
TOLERANCE: Final = 1e-3  # gaps; float32 arithmetic on BF16 numbers stays far below
FAR_DB: Final = 10.0  # rounding alone gives about 20 dB on bell-shaped weights
SWAPPED_DB: Final = 6.0  # by how much the other order of nibbles must fit better


def check_scales(name: str, tensor: Nvfp4Tensor, input_scale: Tensor | None) -> list[CheckFinding]:
    """Check that every scale is positive and finite, and every block scale within its bounds."""
    findings = []
    for part, value in (("weight_scale_2", tensor.tensor_scale), ("input_scale", input_scale)):
        if value is not None and not 0 < value < torch.inf:
            code = "scale_bound" if torch.isfinite(value) else "not_finite"
            findings.append(CheckFinding(code, f"{name}.{part}", f"is {value.item()}"))
    scale = tensor.scale.float()
    lost = int(torch.isnan(scale).sum())
    if lost:
        findings.append(
            CheckFinding("not_finite", f"{name}.weight_scale", f"NaN in {lost} of {scale.numel()} blocks")
        )
    low = int((scale < blocks.E4M3_MIN).sum())
    if low:
        detail = f"zero or negative in {low} of {scale.numel()} blocks"
        findings.append(CheckFinding("scale_bound", f"{name}.weight_scale", detail))
    if not (tensor.packed & 0x77).any():
        findings.append(CheckFinding("all_zero", name))
    return findings


def check_shared(group: Sequence[str], part: str, values: Sequence[Tensor]) -> list[CheckFinding]:
    """Check that layers which a server fuses have the same scale."""
    numbers = [value.item() for value in values]
    if len(set(numbers)) == 1:
        return []
    named = ", ".join(f"{n.rpartition('.')[2]} {v:.6g}" for n, v in zip(group, numbers, strict=True))
    return [CheckFinding("fused_scales", f"{group[0]}.{part}", named)]


def compare_weights(tensor: Nvfp4Tensor, source: Tensor) -> RoundingStats:
    """Compare a layer with the weights it was made from."""
    parts = _slices(tensor)
    return sum((rounding_stats(part, _rows(source)[rows].float()) for part, rows in parts), RoundingStats())


def rounding_stats(tensor: Nvfp4Tensor, source: Tensor) -> RoundingStats:
    """The difference between a layer and its source, float32 [out, in]."""
    step = blocks.step(tensor.scale, tensor.tensor_scale).repeat_interleave(blocks.BLOCK, dim=-1)
    size, off = source.abs() / step, blocks.dequantize(tensor) - source
    gap = 0.5 + 0.5 * (size >= 2).float() + (size >= 4).float()
    inside = size <= grid.E2M1_MAX
    error = (off.abs() / step).div_(gap).mul_(inside)
    return RoundingStats(
        weights=source.numel(),
        signal=_square(source),
        noise=_square(off),
        saturated=source.numel() - int(inside.sum()),
        not_nearest=int((error > 0.5 + TOLERANCE).sum()),
        worst=float(error.max()),
    )


def fine_tune_delta(held: Tensor, source: Tensor, base: Tensor) -> FineTuneDelta:
    """What is left of the change source - base; all float32 [out, in]."""
    wanted, got = (source - base).double(), (held - base).double()
    product = wanted * got  # positive where the sign is the same and neither is zero
    return FineTuneDelta(
        moved=int((wanted != 0).sum()),
        kept=int((product > 0).sum()),
        wanted=_square(wanted),
        got=_square(got),
        product=float(product.sum()),
    )


def findings_of(name: str, tensor: Nvfp4Tensor, source: Tensor, fit: RoundingStats) -> list[CheckFinding]:
    """The findings that follow from the statistics of a layer."""
    if fit.sqnr_db < FAR_DB:
        swapped = tensor._replace(packed=(tensor.packed >> 4) | (tensor.packed << 4))
        other = compare_weights(swapped, source)
        if other.sqnr_db > fit.sqnr_db + SWAPPED_DB:
            detail = (
                f"swapped, they are {other.sqnr_db:.1f} dB from the source; as they are, {fit.sqnr_db:.1f} dB"
            )
            return [CheckFinding("nibble_order", f"{name}.weight", detail)]
        return [CheckFinding("far_from_source", name, f"{fit.sqnr_db:.1f} dB")]
    if fit.not_nearest:
        detail = f"{fit.not_nearest} of {fit.weights} weights, up to {fit.worst:.2f} gaps away"
        return [CheckFinding("not_nearest", name, detail)]
    return []


def _square(x: Tensor) -> float:
    return float(x.double().square().sum())


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _slices(tensor: Nvfp4Tensor) -> Iterator[tuple[Nvfp4Tensor, slice]]:
    packed, scale = _rows(tensor.packed), _rows(tensor.scale)
    size = SLICE if packed.device.type == "cpu" else GPU_SLICE
    height = max(1, size // (2 * packed.shape[-1]))
    for start in range(0, len(packed), height):
        rows = slice(start, start + height)
        yield Nvfp4Tensor(packed[rows], scale[rows], tensor.tensor_scale), rows
