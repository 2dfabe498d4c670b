"""Our rounding of inputs beside vLLM's own emulation of FP4 hardware, on the vLLM of `make test-vllm`."""

from __future__ import annotations

import subprocess
from pathlib import Path

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
save_file({"x": ref_nvfp4_quant_dequant(given["x"], 1.0 / given["scale"], 16)}, sys.argv[2])
"""
SHAPE = (256, 512)
OTHERWISE = 1e-2
"""The largest share of values that may differ: they, or their block's scale, lie halfway between two."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,  # vLLM's import alone takes seconds
    pytest.mark.skipif(not VLLM.exists(), reason="no vLLM here: make test-vllm installs it"),
]


@pytest.mark.parametrize(("spread", "clipped"), [(0.02, 1.0), (1.0, 1.0), (8.0, 0.6)])
def test_inputs_are_rounded_as_vllm_emulates_it(tmp_path: Path, spread: float, clipped: float) -> None:
    torch.manual_seed(1)
    x = (torch.randn(SHAPE) * spread * torch.exp(torch.randn(SHAPE))).to(torch.bfloat16)
    scale = blocks.tensor_scale(clipped * x.abs().amax().float())
    save_file({"x": x, "scale": scale.reshape(1)}, tmp_path / "in")
    command = [str(VLLM), "-c", EMULATION, str(tmp_path / "in"), str(tmp_path / "out")]
    subprocess.run(
        command, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"}
    )
    theirs = load_file(tmp_path / "out")["x"].float()
    steps = blocks.step(blocks.block_scale(blocks.block_amax(x), scale), scale)
    ours = fake.fake_static(x, blocks.block_scale(blocks.block_amax(x), scale), scale).float()
    differ = ours != theirs
    assert differ.float().mean() <= OTHERWISE
    assert ((ours - theirs).abs() <= 2.0 * steps.repeat_interleave(blocks.BLOCK, dim=-1)).all()
