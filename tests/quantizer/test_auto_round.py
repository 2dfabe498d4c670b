"""AutoRound's folder read back: its codes to the last one, its scales, and what it leaves out put right."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from safetensors.torch import save_file  # noqa: E402

from quantizer.checkpoint.source import Source, load_model  # noqa: E402
from quantizer.data.dataset import Dataset  # noqa: E402
from quantizer.data.render import TrainingSample  # noqa: E402
from quantizer.layers.attach import make_plan  # noqa: E402
from quantizer.nvfp4 import blocks, grid  # noqa: E402
from quantizer.nvfp4.blocks import Nvfp4Tensor  # noqa: E402
from quantizer.ptq.auto_round import import_layers  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.verify.folder import open_folder  # noqa: E402
from tests.quantizer import folders  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
NEIGHBOURS = {"in_proj_qkv": 1.0, "in_proj_z": 0.7}
"""DeltaNet's two, under two scales, as AutoRound 0.16 leaves them."""


def learned(source: Source, folder: Path) -> dict[str, Any]:
    """A folder such as AutoRound writes, with rounding that is not to the nearest; the codes and scales by layer."""
    model, generator = load_model(source), torch.Generator().manual_seed(0)
    names = make_plan(model, load_recipe("autoround").layers).layers
    tensors: dict[str, Any] = {}
    made: dict[str, Any] = {}
    for name in names:
        weight = model.get_parameter(f"{name}.weight").detach()
        noise = 1 + 0.2 * torch.randn(weight.shape, generator=generator)
        second = blocks.tensor_scale(torch.tensor(4.0 * NEIGHBOURS.get(name.rpartition(".")[2], 1.0)))
        scale = blocks.block_scale(blocks.block_amax(weight), second)
        made[name] = blocks.quantize((weight * noise).bfloat16(), second, scale)
        tensors[f"{name}.weight_packed"] = made[name].packed
        tensors[f"{name}.weight_scale"] = scale
        tensors[f"{name}.weight_global_scale"] = (1 / second).reshape(1)
        tensors[f"{name}.input_global_scale"] = torch.tensor([2688.0 / 9.0])
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    return made


@pytest.mark.parametrize("build", folders.BUILDS)
def test_codes_and_scales_are_taken_over_as_they_are(build: Any, tmp_path: Path) -> None:
    source = folders.bare(build, tmp_path / "source")
    made = learned(source, tmp_path / "theirs")
    plan = make_plan(load_model(source), load_recipe("autoround").layers)
    model = import_layers(source, plan, open_folder(tmp_path / "theirs"))
    out = folders.load(folders.export(model, source, tmp_path / "out"))
    for name, theirs in made.items():
        ours = Nvfp4Tensor(*(out[f"{name}.{part}"] for part in ("weight", "weight_scale", "weight_scale_2")))
        if name.endswith("in_proj_z"):
            assert off(ours, theirs) < 0.05
        else:  # minus zero, which AutoRound can write, becomes zero
            assert torch.equal(grid.decode(grid.unpack(ours.packed)), grid.decode(grid.unpack(theirs.packed)))
            assert torch.equal(ours.scale.float(), theirs.scale.float())
            assert ours.tensor_scale.item() == pytest.approx(theirs.tensor_scale.item(), rel=1e-6)
        assert out[f"{name}.input_scale"].item() == pytest.approx(9 / 2688)


def off(ours: Nvfp4Tensor, theirs: Nvfp4Tensor) -> float:
    wanted = blocks.dequantize(theirs)
    return float((blocks.dequantize(ours) - wanted).norm() / wanted.norm())


def dataset(*lengths: int) -> Dataset:
    start, samples = 0, []
    for length in lengths:
        samples.append(
            TrainingSample(np.arange(start, start + length, dtype=np.int32), np.ones(length, bool))
        )
        start += length
    return Dataset(tuple(samples), len(lengths), 0, "sha256:0")
