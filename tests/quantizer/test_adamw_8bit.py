"""AdamW's step in one pass, beside torchao's."""

from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("torchao", reason=INSTALL)

from torchao.optim.adam import AdamW8bit, single_param_adam  # noqa: E402
from torchao.optim.quant_utils import create_dynamic_map, quantize_8bit_with_qmap  # noqa: E402

from quantizer.train.adamw_8bit import BLOCK, Constants, encode, step  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
N = 32 * BLOCK
PLAIN = Constants(0.9, 0.95, 1e-8, 0.1, 0.0)


def values(signed: bool) -> Any:
    return torch.tensor(list(create_dynamic_map(signed=signed)))


@pytest.mark.parametrize("signed", [True, False], ids=["with a sign", "without"])
def test_codes_are_those_of_the_nearest_values(signed: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    size = 10.0 ** (-8 * torch.rand(200_000, generator=generator))
    x = size * torch.randn(size.shape, generator=generator).sign() if signed else size
    table = values(signed)
    found = (table[encode(x, signed).int()] - x).abs()
    nearest = (table[quantize_8bit_with_qmap(x, table).int()] - x).abs()

    assert float(((found - nearest) / size).max()) < 1e-5


def moments(state: dict[str, Any]) -> list[tuple[Any, Any, Any]]:
    return [(m.codes.view(-1, BLOCK), m.scale, m.qmap) for m in (state["exp_avg"], state["exp_avg_sq"])]


def started(seed: int = 0, dtype: Any = torch.float32) -> tuple[Any, dict[str, Any]]:
    """A weight and moments that some steps have made, as torchao holds them."""
    torch.manual_seed(seed)
    weight = torch.nn.Parameter(torch.randn(N).to(dtype))
    optimizer = AdamW8bit([weight], bf16_stochastic_round=False)
    state = {
        "exp_avg": optimizer._new_buffer(weight, True),
        "exp_avg_sq": optimizer._new_buffer(weight, False),
    }
    state["exp_avg"].copy_(torch.randn(N) * 1e-3)
    state["exp_avg_sq"].copy_(torch.rand(N) * 1e-5)
    return weight.detach(), state


def numbers(lr: float = 1e-2, count: int = 7) -> Any:
    return torch.tensor([lr, 1 - PLAIN.beta1**count, 1 - PLAIN.beta2**count])


def moved(weight: Any, state: Any, gradient: Any, constants: Constants = PLAIN, **more: Any) -> None:
    """A step in place."""
    first, second = moments(state)
    step(
        weight.view(-1, BLOCK),
        gradient.view(-1, BLOCK),
        first,
        second,
        more.get("numbers", numbers()),
        gradient.square().sum(),
        more.get("share", torch.tensor(1.0)),
        torch.tensor(3, dtype=torch.int32),
        constants,
    )


def test_a_step_is_torchaos() -> None:
    (ours, mine), (theirs, other) = started(), started()
    gradient = torch.randn(N) * 1e-3
    moved(ours, mine, gradient)
    single_param_adam(
        theirs, gradient, torch.tensor(7.0), other["exp_avg"], other["exp_avg_sq"], None, torch.tensor(1e-2),
        0.9, 0.95, 0.1, 1e-8, True, False,
    )  # fmt: skip

    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    for one, another in zip(moments(mine), moments(other), strict=True):
        assert float((one[0].int() - another[0].int()).abs().float().mean()) < 1e-3
        torch.testing.assert_close(one[1], another[1])
