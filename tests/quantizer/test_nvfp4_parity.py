"""The reference against one that was written without it: ModelOpt's export."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("modelopt", reason=INSTALL)

from quantizer.nvfp4 import blocks  # noqa: E402
from tests.quantizer import modelopt_cpu  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


@cache
def modelopts() -> Any:
    """ModelOpt's own class; it needs torch only. Not at import: ModelOpt takes seconds, and every worker collects this file."""
    with modelopt_cpu.installed() as mtq:
        return mtq.qtensor.NVFP4QTensor


def bell(seed: int, size: float, dtype: Any = torch.bfloat16) -> Any:
    """Weights as models have them, with blocks of unlike sizes."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.exp2(3 * torch.randn(32, 8, 1, generator=generator))
    noise = torch.randn(32, 8, 16, generator=generator)
    return (noise * spread * size).flatten(-2).to(dtype)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([1e-4, 0.02, 1.0, 300.0]),
    st.sampled_from([torch.bfloat16, torch.float32]),
)
def test_modelopt_writes_the_same_bytes(seed: int, size: float, dtype: Any) -> None:
    weight = bell(seed, size, dtype)
    packed, scale, second = modelopts().quantize(weight.clone(), 16)
    ours = blocks.quantize(weight)

    assert torch.equal(packed._quantized_data, ours.packed)
    assert torch.equal(scale.view(torch.uint8), ours.scale.view(torch.uint8))
    assert torch.equal(second, ours.tensor_scale)
