"""DeltaNet layers on the chunked rule: the same numbers as transformers' own, and nothing left behind."""

from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)


from torch.nn import functional as F  # noqa: E402

from quantizer.layers.deltanet import causal_convolution, use_chunks  # noqa: E402
from tests.quantizer import tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def model(**more: Any) -> Any:
    return tiny.qwen3_5(**more).float()


def gradients(of: Any, mask: Any = None) -> tuple[Any, dict[str, Any]]:
    """Hidden states of some rows, and the gradients of their sum with random weights."""
    of.zero_grad()
    states = of.model(input_ids=tiny.tokens(), attention_mask=mask, use_cache=False).last_hidden_state
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(2))
    (states * weights).sum().backward()
    return states.detach(), {name: p.grad for name, p in of.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("padded", [False, True], ids=["whole rows", "padding"])
def test_a_model_computes_what_it_computed(padded: bool) -> None:
    ours, mask = model(), None
    if padded:
        mask = torch.ones(4, 16, dtype=torch.int64)
        mask[1, 9:] = mask[3, 1:] = 0
    wanted, wanted_gradients = gradients(ours, mask)
    use_chunks(ours)
    found, found_gradients = gradients(ours, mask)

    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert found_gradients.keys() == wanted_gradients.keys()
    for name, wanted_one in wanted_gradients.items():
        torch.testing.assert_close(found_gradients[name], wanted_one, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("taps, tokens", [(4, 9), (4, 2), (1, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_shifted_rows_are_the_convolution(taps: int, tokens: int, bias: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, tokens, 6), torch.randn(6, 1, taps)
    more = torch.randn(6) if bias else None
    wanted = F.conv1d(x.mT, weight, more, padding=taps - 1, groups=6)[..., :tokens].mT

    torch.testing.assert_close(causal_convolution(x, weight, more), wanted)
    low = causal_convolution(x.bfloat16(), weight.bfloat16(), more)
    assert low.dtype == torch.bfloat16
