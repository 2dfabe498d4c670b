"""The search for block scales: the short one finds what a search of all scales finds, and so does ModelOpt."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.nvfp4 import blocks  # noqa: E402
from quantizer.ptq import scales  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def error(weight: Any, scale: Any, second: Any) -> Any:
    """Of each block, summed squares in float32, in the order that the search sums them."""
    rounded = blocks.round_blocks(weight.float(), blocks.step(scale, second))
    return (rounded - weight.float()).unflatten(-1, (-1, 16)).square().sum(dim=-1)


def all_scales(weight: Any, second: Any) -> Any:
    """Every scale of E4M3 tried for every block; of equals the smallest."""
    codes = torch.arange(1, 127, dtype=torch.uint8).view(torch.float8_e4m3fn)
    shape = (*weight.shape[:-1], weight.shape[-1] // 16)
    errors = torch.stack([error(weight, code.expand(shape), second) for code in codes])
    return codes[errors.argmin(dim=0)]


def weights(seed: int, kind: str) -> Any:
    generator = torch.Generator().manual_seed(seed)
    spread = torch.exp2(4 * torch.randn(16, 8, 1, generator=generator))
    bell = (torch.randn(16, 8, 16, generator=generator) * spread).flatten(-2)
    if kind == "powers":  # ties everywhere
        return (bell.sign() * torch.exp2(torch.randint(-20, 2, bell.shape, generator=generator))).bfloat16()
    if kind == "edges":  # nothing, next to nothing, all alike, one alone
        bell[0] = 0
        bell[1] *= 1e-6
        bell[2] = bell.abs().max()
        bell[3, ::16] = 1e4 * bell[3, ::16].sign()
    return bell.bfloat16()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from(["bell", "powers", "edges"]),
    st.sampled_from([1.0, 1.3, 7.0]),
)
def test_the_sweep_finds_the_best_of_all_scales(seed: int, kind: str, larger: float) -> None:
    weight = weights(seed, kind)
    second = blocks.tensor_scale(weight.abs().amax().float() * larger)
    found = scales.sweep(weight, second)

    assert torch.equal(found.view(torch.uint8), all_scales(weight, second).view(torch.uint8))
