"""The NVFP4 layer: what it computes is what its export says, and its gradients are the straight-through ones."""

from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from quantizer.layers.linear import NVFP4Linear, hold_weights  # noqa: E402
from quantizer.nvfp4 import blocks, fake  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
KINDS = ("dynamic", "static", "learned")


def layer(
    kind: str = "dynamic", dtype: Any = torch.float32, norm: float = 448.0, seed: int = 0
) -> NVFP4Linear:
    """64 to 32, with a bias and weights of unlike sizes."""
    torch.manual_seed(seed)
    plain = nn.Linear(64, 32, dtype=dtype)
    with torch.no_grad():
        plain.weight.mul_(torch.exp2(2 * torch.randn(64)))
    made = NVFP4Linear(plain, norm)
    made.input_amax.fill_(4.0)
    if kind == "static":
        scale = blocks.block_scale(blocks.block_amax(plain.weight.detach()) * 0.8, made.tensor_scale())
        made.fix_scales(scale)
    if kind == "learned":
        made.learn_scales()
    return made


def inputs(seed: int = 1, dtype: Any = torch.float32) -> Any:
    return torch.randn(5, 64, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("norm", [448.0, 256.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_fake_weight_is_what_the_export_stands_for(kind: str, norm: float) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        made = layer(kind, dtype, norm)

        assert torch.equal(made.fake_weight(), blocks.dequantize(made.quantize(), torch.bfloat16))


def test_weights_get_the_gradient_of_the_rounded_layer() -> None:
    made, x = layer(), inputs().requires_grad_()
    made(x).square().sum().backward()
    weight = made.fake_weight().detach().float().requires_grad_()
    rounded = fake.fake_dynamic(x.detach(), made.input_amax).requires_grad_()
    F.linear(rounded, weight, made.bias).square().sum().backward()

    assert made.weight.grad is not None and weight.grad is not None
    assert torch.equal(made.weight.grad, weight.grad.bfloat16().float())
    assert torch.equal(x.grad, rounded.grad)


# Dynamo itself makes an object of the class that torch says should have none.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_it_compiles_into_one_graph() -> None:
    for kind, held in (("dynamic", False), ("static", True), ("learned", False)):
        made, traced = layer(kind), layer(kind)
        if held:
            hold_weights(traced)
        compiled = torch.compile(traced, backend="aot_eager", fullgraph=True)
        out = compiled(inputs())
        out.square().sum().backward()
        made(inputs()).square().sum().backward()
        learned = made.block_amax if kind == "learned" else made.weight
        theirs = traced.block_amax if kind == "learned" else traced.weight
        assert learned is not None and theirs is not None

        torch.testing.assert_close(out, made(inputs()))
        torch.testing.assert_close(theirs.grad, learned.grad)
