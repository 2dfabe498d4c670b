"""Our rounding of inputs beside vLLM's own emulation of FP4 hardware, on the vLLM of `make test-vllm`."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the quantizer extra: make quantizer")

from safetensors.torch import load_file, save_file  # noqa: E402

from quantizer.nvfp4 import blocks, fake  # noqa: E402

VLLM = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
EMULATION = """
import sys
from safetensors.torch import load_file, save_file
from vllm.model_executor.layers.quantization.utils.nvfp4_emulation_utils import ref_nvfp4_quant_dequant
given = load_file(sys.argv[1])
scales = {name[6:]: given.pop(name) for name in [*given] if name.startswith("scale ")}
save_file({name: ref_nvfp4_quant_dequant(x, 1.0 / scales[name], 16) for name, x in given.items()}, sys.argv[2])
"""
SHAPE = (256, 512)
OTHERWISE = 1e-2
"""The largest share of values that may differ: they, or their block's scale, lie halfway between two."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,  # vLLM's import alone takes seconds
    pytest.mark.skipif(not VLLM.exists(), reason="no vLLM here: make test-vllm installs it"),
]


INPUTS = [(0.02, 1.0), (1.0, 1.0), (8.0, 0.6)]
"""How far inputs are spread, and where they are clipped, as a share of the largest."""


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Inputs, their scales, and what vLLM makes of them: of all in one process, as its import is most of the work."""
    place, given = tmp_path_factory.mktemp("vllm"), []
    for spread, clipped in INPUTS:
        torch.manual_seed(1)
        x = (torch.randn(SHAPE) * spread * torch.exp(torch.randn(SHAPE))).to(torch.bfloat16)
        given.append((x, blocks.tensor_scale(clipped * x.abs().amax().float())))
    held = {str(n): x for n, (x, _) in enumerate(given)}
    held |= {f"scale {n}": scale.reshape(1) for n, (_, scale) in enumerate(given)}
    save_file(held, place / "in")
    command = [str(VLLM), "-c", EMULATION, str(place / "in"), str(place / "out")]
    subprocess.run(
        command, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"}
    )
    theirs = load_file(place / "out")
    return [(x, scale, theirs[str(n)].float()) for n, (x, scale) in enumerate(given)]


@pytest.mark.parametrize("n", range(len(INPUTS)), ids=[f"{spread}-{clipped}" for spread, clipped in INPUTS])
def test_inputs_are_rounded_as_vllm_emulates_it(rounded: list[Any], n: int) -> None:
    x, scale, theirs = rounded[n]
    steps = blocks.step(blocks.block_scale(blocks.block_amax(x), scale), scale)
    ours = fake.fake_static(x, blocks.block_scale(blocks.block_amax(x), scale), scale).float()
    differ = ours != theirs
    assert differ.float().mean() <= OTHERWISE
    assert ((ours - theirs).abs() <= 2.0 * steps.repeat_interleave(blocks.BLOCK, dim=-1)).all()
