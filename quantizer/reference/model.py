"""The model of an NVFP4 folder in memory, whose layers compute what FP4 hardware computes, in BF16 products.

Hardware multiplies codes and scales the sums in float32; here the scaled values are rounded to BF16 and multiplied.
"""

from pathlib import Path

from torch import nn

from quantizer.checkpoint.source import finish
from quantizer.core.errors import SourceError
from quantizer.ptq.parity import open_served


def reference_model(path: Path, device: str = "cpu", *, weight_only: bool = False) -> nn.Module:
    """The whole model on a device, in evaluation mode. Raises SourceError if a weight or an input scale is missing."""
    model, layers = open_served(path, device, weight_only)
    if not layers.packed:
        raise SourceError(f"{path}: no layer of it is in NVFP4")
    return finish(layers.put(model), device)
