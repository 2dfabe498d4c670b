"""NVFP4 tensors: one worked out by hand, and what holds for all of them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from quantizer.nvfp4 import blocks, grid  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
some = settings(max_examples=40)

ROW = [
    # amax 2688, so the tensor scale is 1; the block scale is 448. In units of 448:
    # 6, -6, .5, .25, .75, -.75, 1.5, 1.75, 2.5, 3.5, 5, -.22, 0 …
    2688, -2688, 224, 112, 336, -336, 672, 784, 1120, 1568, 2240, -100, 0, 0, 0, 0,
    # amax 6: scale 1
    6, 1, -1.5, 2, 3, 4, 4.9, 5.1, 0, 0, 0, 0, 0, 0, 0, -0.5,
    # nothing: scale 1
    *[0] * 16,
    # amax 0.0117: 0.00195 would do, and is E4M3's smallest number, 2^-9
    6 * 2**-9, *[2**-9] * 15,
    # amax 0.0029: a scale of 2^-11 is below it, so 2^-9 and numbers up to 1.5
    6 * 2**-11, *[2**-11] * 15,
]  # fmt: skip
CODES = [
    7, 15, 1, 0, 2, 10, 3, 4, 4, 6, 6, 8, 0, 0, 0, 0,
    7, 2, 11, 4, 5, 6, 6, 7, 0, 0, 0, 0, 0, 0, 0, 9,
    *[0] * 16,
    7, *[2] * 15,
    3, *[0] * 15,
]  # fmt: skip
SCALES = [448, 1, 1, 2**-9, 2**-9]


@st.composite
def tensors(draw: Any) -> Any:
    """A matrix of whole blocks whose sizes differ by up to 2^24, some of them zero; float32 or BF16."""
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    exponents = draw(st.lists(st.integers(-12, 12), min_size=rows * columns, max_size=rows * columns))
    zero = draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    noise = torch.randn(rows, columns, 16, generator=generator)
    sizes = torch.tensor([0.0 if z else 2.0**e for e, z in zip(exponents, zero, strict=True)])
    weight = (noise * sizes.view(rows, columns, 1)).flatten(-2)
    return weight.to(draw(st.sampled_from([torch.float32, torch.bfloat16])))


def test_a_row_worked_out_by_hand() -> None:
    tensor = blocks.quantize(torch.tensor([ROW]))

    assert tensor.tensor_scale.item() == 1.0
    assert tensor.scale.float().tolist() == [SCALES]
    assert grid.unpack(tensor.packed).tolist() == [CODES]
    assert tensor.packed[0, :8].tolist() == [0xF7, 0x01, 0xA2, 0x43, 0x64, 0x86, 0x00, 0x00]
    assert tensor.scale.view(torch.uint8)[0].tolist() == [0x7E, 0x38, 0x38, 0x01, 0x01]
    first = [2688, -2688, 224, 0, 448, -448, 672, 896, 896, 1792, 1792, 0, 0, 0, 0, 0]
    assert first == blocks.dequantize(tensor)[0, :16].tolist()


@some
@given(tensors())
def test_no_weight_is_further_off_than_half_a_gap(weight: Any) -> None:
    tensor = blocks.quantize(weight)
    step = blocks.step(tensor.scale, tensor.tensor_scale).repeat_interleave(16, -1)
    size = weight.float().abs() / step
    gap = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    error = (blocks.dequantize(tensor) - weight.float()).abs() / step

    assert (error <= torch.maximum(gap / 2, size - 6) + 1e-5).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_not_finite_is_refused(bad: float) -> None:
    weight = torch.ones(2, 16)
    weight[1, 3] = bad

    with pytest.raises(ValueError, match="NaN or infinity"):
        blocks.quantize(weight)
