"""What a plan reads off the headers is what the loaded model has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.layers.attach import make_plan  # noqa: E402
from quantizer.plan.memory import make_job, result  # noqa: E402
from quantizer.plan.model import read_model  # noqa: E402
from quantizer.recipes.recipe import Layers, Recipe  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize(
    "layers",
    [Layers(), Layers(first=1, exclude=("*o_proj",))],
    ids=["all", "some"],
)
@pytest.mark.parametrize("build", [tiny.qwen3, tiny.qwen3_5])
def test_parameters_and_quantized_layers(build: Callable[[], Any], layers: Layers, tmp_path: Path) -> None:
    loaded, model = build(), read_model(folders.bare(build, tmp_path / "model").path)
    plan = make_plan(loaded, layers)
    chosen = [loaded.get_submodule(name) for name in plan.layers]

    assert model.parameters == sum(parameter.numel() for parameter in loaded.parameters())
    job = make_job(model, Recipe("r", layers=layers))
    assert job.quantized == sum(m.weight.numel() for m in chosen)
    assert result(job) == 0.5625 * job.quantized + 2 * (model.parameters - job.quantized)
    assert model.deltanet_layers == sum(hasattr(block, "linear_attn") for block in loaded.model.layers)
