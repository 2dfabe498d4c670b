"""Ranks the layers of a fine-tune to keep out of NVFP4: the most rounding noise per byte first.

The cosine of the change before and after rounding is approximately 1 / sqrt(1 + noise / change), with both summed over all
weights. Of layers with equal cost, the one with the most noise therefore gains most; layers that a server fuses are kept
together. BF16 adds no noise, and FP8 adds FP8_NOISE of NVFP4's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quantizer.layers.fused import fused_groups
from quantizer.verify.risk import LayerRisk

FP8_NOISE: Final = 0.08
"""The ratio of squared errors for normally distributed numbers with one scale per matrix; a test measures it."""
NVFP4_BITS, FP8_BITS, BF16_BITS = 4.5, 8.0, 16.0
SHARES: Final = (0.1, 0.25, 0.5)
"""The shares of weights that may be kept."""


@dataclass(frozen=True, slots=True)
class KeptLayers:
    """Layers to keep in another format. format: BF16 or FP8. bytes: more than in NVFP4. cosine: of the whole change, after
    the others were rounded."""

    format: str
    layers: tuple[str, ...]
    weights: int
    bytes: int
    cosine: float

    @property
    def kinds(self) -> dict[str, int]:
        """How many layers of each kind, such as q_proj."""
        found: dict[str, int] = {}
        for name in self.layers:
            kind = name.rpartition(".")[2]
            found[kind] = found.get(kind, 0) + 1
        return dict(sorted(found.items()))

    def as_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "set": f"layers.{'fp8' if self.format == 'FP8' else 'exclude'}={json.dumps(self.layers)}",
            "layers": list(self.layers),
            "weights": self.weights,
            "bytes": self.bytes,
            "cosine": self.cosine,
        }


def keep_first(layers: Sequence[LayerRisk]) -> Iterator[KeptLayers]:
    """For each of SHARES, the layers to keep within that share of the weights, in BF16 and in FP8."""
    order = _groups(layers)
    total = sum(layer.weights for layer in layers)
    for share in SHARES:
        kept: list[LayerRisk] = []
        for group in order:
            if sum(layer.weights for layer in (*kept, *group)) <= share * total:
                kept += group
        if kept:
            yield _kept("BF16", BF16_BITS, 0.0, kept, layers)
            yield _kept("FP8", FP8_BITS, FP8_NOISE, kept, layers)


def noise(layer: LayerRisk) -> float:
    """The squared error of a layer's rounding."""
    delta = layer.delta
    return max(0.0, delta.got + delta.wanted - 2 * delta.product)


def _groups(layers: Sequence[LayerRisk]) -> list[list[LayerRisk]]:
    """Groups of layers that are kept together, by noise per byte, largest first."""
    named = {layer.name: layer for layer in layers}
    joined = fused_groups(named)
    together = {name for group in joined for name in group}
    groups = [[named[name] for name in group] for group in joined]
    groups += [[layer] for layer in layers if layer.name not in together]
    return sorted(
        groups, key=lambda group: sum(map(noise, group)) / sum(layer.weights for layer in group), reverse=True
    )


def _kept(
    format: str, bits: float, left: float, kept: Sequence[LayerRisk], layers: Sequence[LayerRisk]
) -> KeptLayers:
    wanted = sum(layer.delta.wanted for layer in layers)
    inside = {layer.name for layer in kept}
    error = sum(noise(layer) * (left if layer.name in inside else 1.0) for layer in layers)
    weights = sum(layer.weights for layer in kept)
    return KeptLayers(
        format,
        tuple(layer.name for layer in layers if layer.name in inside),
        weights,
        round(weights * (bits - NVFP4_BITS) / 8),
        math.sqrt(wanted / (wanted + error)) if wanted else 0.0,
    )
