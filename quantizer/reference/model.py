"""The model of an NVFP4 folder in memory, whose layers compute what FP4 hardware computes, in BF16 products.

Hardware multiplies codes and scales the sums in float32; here the scaled values are rounded to BF16 and multiplied.
"""

from pathlib import Path

import torch
from torch import nn

from quantizer.checkpoint.source import fill, finish, from_config
from quantizer.core.errors import SourceError
from quantizer.core.expert_names import unwrapped_name
from quantizer.ptq.parity import served_linear
from quantizer.verify.folder import open_folder
from quantizer.verify.layout import readable_layers, refuse_fp8


def reference_model(path: Path, device: str = "cpu", *, weight_only: bool = False) -> nn.Module:
    """The whole model on a device, in evaluation mode. Raises SourceError if a weight or an input scale is missing."""
    from transformers import AutoConfig

    folder = open_folder(path)
    refuse_fp8(folder)
    packed = {unwrapped_name(name): name for name in readable_layers(folder)}
    if not packed:
        raise SourceError(f"{path}: no layer of it is in NVFP4")
    model = from_config(AutoConfig.from_pretrained(path, local_files_only=True), torch.bfloat16)
    if foreign := sorted(packed.keys() - {name for name, _ in model.named_modules()}):
        raise SourceError(
            f"{path}: {foreign[0]} is no layer of transformers' model (stacked experts?); it is not served"
        )
    for short, name in packed.items():
        bias = getattr(model.get_submodule(short), "bias", None)
        model.set_submodule(short, served_linear(folder, name, device, bias, weight_only))
    gone = {f"{name}.weight" for name in packed.values()}
    plain = {unwrapped_name(name): name for name in folder.tensors if name not in gone}
    model.tie_weights()  # type: ignore[operator]  # transformers'
    missing = sorted({name for name, _ in model.named_parameters()} - plain.keys())
    if missing:
        raise SourceError(f"{path}: lacks {len(missing)} of the model's weights, first {missing[0]}")
    fill(model, folder, plain, device)
    return finish(model, device)
