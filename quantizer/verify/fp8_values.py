"""Check the numbers of a layer in FP8: its scales, its distance from the source, and what is left of a fine-tune."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from quantizer.nvfp4 import fp8
from quantizer.nvfp4.blocks import E4M3_MAX
from quantizer.nvfp4.fp8 import Fp8Tensor
from quantizer.verify.report import CheckFinding, FineTuneDelta, RoundingStats
from quantizer.verify.values import FAR_DB, TOLERANCE, check_single_scales, fine_tune_delta

SMALLEST_NORMAL: Final = 2.0**-6
MANTISSA: Final = 3  # bits
SLICE: Final = 2**22  # weights per slice


def check_numbers(name: str, tensor: Fp8Tensor, input_scale: Tensor | None) -> list[CheckFinding]:
    """Check that both scales are positive and finite, and every weight is a number."""
    findings = check_single_scales(name, {"weight_scale": tensor.scale, "input_scale": input_scale})
    sizes = tensor.codes.view(torch.uint8) & 0x7F
    if lost := int((sizes == 0x7F).sum()):
        findings.append(
            CheckFinding("not_finite", f"{name}.weight", f"NaN in {lost} of {sizes.numel()} weights")
        )
    if not sizes.any():
        findings.append(CheckFinding("all_zero", name))
    return findings


def compare_weights(
    tensor: Fp8Tensor, source: Tensor, base: Tensor | None
) -> tuple[RoundingStats, FineTuneDelta | None]:
    """Compare a layer with the weights it was made from, and both with those before a fine-tune: float [out, in]."""
    fit, delta = RoundingStats(), FineTuneDelta()
    height = max(1, SLICE // max(1, source.shape[-1]))
    for start in range(0, len(source), height):
        rows = slice(start, start + height)
        weights = source[rows].float()
        held = fp8.dequantize(Fp8Tensor(tensor.codes[rows], tensor.scale))
        fit += rounding_stats(held, weights, tensor.scale)
        if base is not None:
            delta += fine_tune_delta(held, weights, base[rows].float())
    return fit, delta if base is not None else None


def rounding_stats(held: Tensor, source: Tensor, scale: Tensor) -> RoundingStats:
    """The difference between dequantized weights and their source, both float32 [out, in]."""
    size, off = source.abs() / scale, held - source
    inside = size <= E4M3_MAX
    gap = torch.exp2(size.clamp(min=SMALLEST_NORMAL).log2().floor() - MANTISSA)
    error = (off.abs() / scale).div_(gap).mul_(inside)
    return RoundingStats(
        weights=source.numel(),
        signal=float(source.double().square().sum()),
        noise=float(off.double().square().sum()),
        saturated=source.numel() - int(inside.sum()),
        not_nearest=int((error > 0.5 + TOLERANCE).sum()),
        worst=float(error.max()),
    )


def findings_of(name: str, fit: RoundingStats) -> list[CheckFinding]:
    """The findings that follow from the statistics of a layer."""
    if fit.sqnr_db < FAR_DB:
        return [CheckFinding("far_from_source", name, f"{fit.sqnr_db:.1f} dB")]
    if fit.not_nearest:
        detail = f"{fit.not_nearest} of {fit.weights} weights, up to {fit.worst:.2f} gaps away"
        return [CheckFinding("not_nearest", name, detail)]
    return []
