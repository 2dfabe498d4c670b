"""Fake quantization: the values of the format forward, the identity backward."""

from __future__ import annotations

from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from quantizer.nvfp4 import blocks, fake  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def weights(dtype: Any = torch.float32) -> Any:
    return torch.randn(6, 48, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_forward_is_quantizing_and_dequantizing(dtype: Any) -> None:
    x = weights(dtype)
    rounded = fake.fake_dynamic(x, x.abs().amax())

    assert rounded.dtype == dtype
    assert torch.equal(blocks.dequantize(blocks.quantize(x), dtype), rounded)


def test_gradients_pass_through() -> None:
    x = weights().requires_grad_()
    pull = torch.randn(6, 48, generator=torch.Generator().manual_seed(2))
    (fake.fake_dynamic(x, torch.tensor(0.5)) * pull).sum().backward()

    assert torch.equal(pull, x.grad)


def test_beyond_the_limit_there_is_no_gradient() -> None:
    x = weights()
    x[0, :2] = torch.tensor([0.5, -0.5])
    x.requires_grad_()
    fake.fake_dynamic(x, torch.tensor(0.5), limit=torch.tensor(0.5)).sum().backward()

    assert x.grad[0, :2].tolist() == [1, 1], "the amax itself is inside"
    assert torch.equal((x.detach().abs() <= 0.5).float(), x.grad)
