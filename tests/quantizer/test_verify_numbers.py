"""The numbers of a check: error against the source and what became of a fine-tune, by hand and by other means."""

import math

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from quantizer.nvfp4 import blocks  # noqa: E402
from quantizer.verify import values  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def test_an_error_worked_out_by_hand() -> None:
    source = torch.tensor([[6.0, 2.2, 5.0, 6.3] + [0.0] * 12])
    tensor = blocks.quantize(source, torch.tensor(1.0), torch.tensor([[1.0]]).to(torch.float8_e4m3fn))
    fit = values.rounding_stats(tensor, source)

    assert (fit.weights, fit.saturated, fit.not_nearest) == (16, 1, 0)
    assert fit.worst == 0.5
    assert fit.signal == pytest.approx(36 + 2.2**2 + 25 + 6.3**2)
    assert fit.noise == pytest.approx(0.2**2 + 1 + 0.3**2)
    assert fit.sqnr_db == pytest.approx(10 * math.log10(fit.signal / fit.noise))


def test_a_change_worked_out_by_hand() -> None:
    base = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0]])
    source = torch.tensor([[1.5, 0.5, 1.1, 0.9, 1.0]])
    held = torch.tensor([[2.0, 0.5, 1.0, 1.5, 1.0]])
    delta = values.fine_tune_delta(held, source, base)

    assert (delta.moved, delta.kept) == (4, 2)
    assert delta.sign_kept == 0.5
    assert delta.product == pytest.approx(0.5 * 1.0 + 0.5 * 0.5 - 0.1 * 0.5)
    assert delta.cosine == pytest.approx(0.7 / math.sqrt(0.52 * 1.5))
