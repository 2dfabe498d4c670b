"""Quantization with Intel's AutoRound, which learns the rounding of each weight. Layer selection and export are ours.

AutoRound writes an llm_compressor folder: `weight_packed`, `weight_scale`, and the reciprocals of the two tensor scales.
Importing it does not change the codes. AutoRound shares no scale between DeltaNet's in_proj_qkv and in_proj_z, which a server
fuses: there the layer with the smaller scale is rounded again. Source: AutoRound 0.16, export/export_to_llmcompressor.
"""

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from quantizer.checkpoint.source import Source, load_model
from quantizer.core.cost import Cost
from quantizer.core.errors import DataError, SourceError
from quantizer.core.expert_names import unwrapped_name
from quantizer.data.dataset import Dataset
from quantizer.layers.attach import LayerPlan, attach, make_plan, share_scales
from quantizer.layers.linear import SERVED_DTYPE, NVFP4Linear, nvfp4_layers
from quantizer.nvfp4 import blocks
from quantizer.nvfp4.blocks import Nvfp4Tensor
from quantizer.nvfp4.grid import E2M1_MAX
from quantizer.ptq.scales import sweep
from quantizer.recipes.recipe import Recipe, Rounding
from quantizer.verify.folder import Folder, open_folder

WHOLE: Final = {"bits": 16, "act_bits": 16}
"""AutoRound's settings for a layer that is not quantized."""


def quantize(recipe: Recipe, source: Source, data: Dataset, device: str, cost: Cost) -> nn.Module:
    """The source's model with NVFP4 layers that have AutoRound's codes and scales. Raises DataError."""
    settings = recipe.rounding or Rounding()
    rows = token_rows(data, settings.tokens)
    with cost.part("load"):
        model = load_model(source, device=device)
        plan = make_plan(model, recipe.layers)
    with tempfile.TemporaryDirectory(prefix="auto-round-") as folder:
        with cost.part("auto_round"):
            _run(model, source, plan, rows, settings, Path(folder), device)
            del model
        with cost.part("load"):
            written = next(Path(folder).rglob("config.json")).parent
            return import_layers(source, plan, open_folder(written), device)


def token_rows(data: Dataset, tokens: int) -> list[Tensor]:
    """All samples concatenated and split into rows of one length, as AutoRound expects: int64 [1, tokens] each."""
    stream = np.concatenate([sample.ids for sample in data.samples])
    count = len(stream) // tokens
    if not count:
        raise DataError(f"the data has {len(stream)} tokens, fewer than one row of rounding.tokens={tokens}")
    return [torch.from_numpy(row).long().unsqueeze(0) for row in np.split(stream[: count * tokens], count)]


def import_layers(source: Source, plan: LayerPlan, written: Folder, device: str = "cpu") -> nn.Module:
    """The source's model with the layers of an llm_compressor folder. Raises SourceError if a layer is missing
    there."""
    model = load_model(source, device=device)
    names = {unwrapped_name(name): name for name in written.tensors}
    for name, layer in attach(model, plan).items():
        parts = [
            names.get(f"{name}.{part}")
            for part in ("weight_packed", "weight_scale", "weight_global_scale", "input_global_scale")
        ]
        if None in parts:
            raise SourceError(f"{written.path}: AutoRound wrote no {name}.weight_packed")
        _set(layer, *(written.load(part).to(device) for part in parts if part))
    _tie(model)
    return model


@torch.no_grad()
def _set(
    layer: NVFP4Linear, packed: Tensor, scale: Tensor, weight_global: Tensor, input_global: Tensor
) -> None:
    second = 1 / weight_global.float().reshape(())
    layer.weight.copy_(blocks.dequantize(Nvfp4Tensor(packed, scale, second), SERVED_DTYPE))
    layer.weight_amax.copy_(second * (E2M1_MAX * blocks.E4M3_MAX))
    layer.input_amax.copy_(E2M1_MAX * blocks.E4M3_MAX / input_global.float().reshape(()))
    layer.fix_scales(scale)


def _tie(model: nn.Module) -> None:
    layers = nvfp4_layers(model)
    before = {name: layer.weight_amax.clone() for name, layer in layers.items()}
    share_scales(model)
    for name, layer in layers.items():
        if layer.weight_amax != before[name]:
            layer.fix_scales(sweep(layer.weight.detach(), layer.tensor_scale()))


def _run(
    model: nn.Module,
    source: Source,
    plan: LayerPlan,
    rows: list[Tensor],
    settings: Rounding,
    folder: Path,
    device: str,
) -> None:
    from transformers import AutoTokenizer

    kept = [name for name in plan.kept if isinstance(model.get_submodule(name), nn.Linear)]
    # Without an explicit mask, AutoRound makes one and passes the first layer's to all; a hybrid model has two kinds.
    batches: list[dict[str, Any]] = [{"input_ids": row, "attention_mask": None} for row in rows]
    rounder = import_module("auto_round").AutoRound(
        model,
        AutoTokenizer.from_pretrained(source.path, local_files_only=True),
        scheme="NVFP4",
        layer_config=dict.fromkeys(kept, WHOLE),
        dataset=torch.utils.data.DataLoader(batches, batch_size=None),  # type: ignore[arg-type]
        iters=settings.steps,
        seqlen=settings.tokens,
        nsamples=len(rows),
        batch_size=min(8, len(rows)),
        device_map=device,
        low_cpu_mem_usage=False,
    )
    rounder.quantize_and_save(output_dir=str(folder), format="llm_compressor")
