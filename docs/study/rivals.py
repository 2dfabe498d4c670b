"""Folders by other quantizers, of the same source and data: what `real.py` measures beside ours.

Each takes SOURCE (a BF16 folder), OURS (its folder by the recipe `default`, for tokenizer and configuration), OUT and DATA.
"""

import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from quantizer.data.dataset import load_dataset
from quantizer.data.render import open_renderer

INDEX = "model.safetensors.index.json"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def load(source: Path):
    return AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).to(DEVICE).eval()


def rows(source: Path, data: Path, count: int) -> list[list[int]]:
    """The conversations that our own recipes draw, as token ids."""
    drawn = load_dataset(data, open_renderer(source), max_tokens=2048, conversations=count, seed=1)
    return [sample.ids.tolist() for sample in drawn.samples]


@torch.no_grad()
def read(model, ids: list[list[int]]) -> None:
    for row in ids:
        model(input_ids=torch.tensor([row], device=DEVICE))


def modelopt(config: str, source: Path, ours: Path, out: Path, data: Path) -> None:
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    model, ids = load(source), rows(source, data, 512)
    mtq.quantize(model, getattr(mtq, config), forward_loop=lambda model: read(model, ids))
    with torch.inference_mode():
        export_hf_checkpoint(model, export_dir=out)
    complete(ours, out)


def torchao(source: Path, ours: Path, out: Path, data: Path) -> None:
    """Weights alone: its inputs are rounded by kernels of Blackwell only."""
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

    model = load(source)
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            weight = layer.weight.data
            scale = per_tensor_amax_to_scale(weight.abs().amax().float())
            layer.weight.data = NVFP4Tensor.to_nvfp4(weight, per_tensor_scale=scale).dequantize(
                torch.bfloat16
            )
    model.save_pretrained(out)
    complete(source, out)


def complete(ours: Path, out: Path) -> None:
    """The tokenizer from a folder of ours."""
    for file in ours.iterdir():
        if file.suffix not in (".json", ".jinja", ".model") or file.name in ("artefact.json", INDEX):
            continue
        if not file.name.endswith("config.json") or file.name.startswith("tokenizer"):
            shutil.copy(file, out)


RIVALS = {
    "modelopt": lambda *given: modelopt("NVFP4_DEFAULT_CFG", *given),
    "modelopt-mse": lambda *given: modelopt("NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG", *given),
    "modelopt-awq": lambda *given: modelopt("NVFP4_AWQ_LITE_CFG", *given),
    "modelopt-four-over-six": lambda *given: modelopt("NVFP4_FOUR_OVER_SIX_CFG", *given),
    "torchao": torchao,
}  # fmt: skip
