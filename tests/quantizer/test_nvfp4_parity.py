"""The reference against two others that were written without it: ModelOpt's export and ggml."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("modelopt", reason=INSTALL)
gguf = pytest.importorskip("gguf", reason=INSTALL)

from quantizer.nvfp4 import blocks, grid  # noqa: E402
from tests.quantizer import modelopt_cpu  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
NVFP4 = gguf.GGMLQuantizationType.NVFP4


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


# ggml's NVFP4 has no tensor scale in its blocks of 64; it is the reference at a tensor scale of 1. Its codes of
# 16 columns lie half by half: column j is a low nibble, column j + 8 the high nibble beside it.


def ggml_parts(packed: Any) -> tuple[Any, Any]:
    """Scale bytes [rows, in / 16] and codes [rows, in] from ggml's rows of 36 bytes for 64 columns."""
    rows = torch.from_numpy(packed).reshape(len(packed), -1, 36)
    nibbles = rows[..., 4:].reshape(len(packed), -1, 8)
    return rows[..., :4].flatten(1), torch.cat([nibbles & 15, nibbles >> 4], -1).flatten(1)


@pytest.fixture(scope="module")
def ggml() -> Any:
    pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")
    from quantizer.gguf import ggml

    return ggml


@pytest.mark.parametrize("size", [0.2, 1.0, 30.0])
def test_ggml_packs_the_same_codes_and_scales(ggml: Any, size: float) -> None:
    weight = torch.randn(64, 512, generator=torch.Generator().manual_seed(4)) * size
    scales, codes = ggml_parts(ggml.quantize(weight.numpy(), NVFP4))
    ours = blocks.quantize(weight, torch.tensor(1.0))
    plain = grid.unpack(ours.packed)

    assert torch.equal(scales, ours.scale.view(torch.uint8))
    assert torch.equal(codes, plain.where(plain != 8, 0))
