"""The numbers of a check: error against the source and what became of a fine-tune, by hand and by other means."""

import math
from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from quantizer.nvfp4 import blocks  # noqa: E402
from quantizer.verify import values  # noqa: E402
from quantizer.verify.risk import assess, whole  # noqa: E402
from tests.quantizer.checkpoints import LINEAR, save_source, weights  # noqa: E402

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


def test_a_thin_fine_tune_is_lost_and_a_strong_one_is_kept(tmp_path: Path) -> None:
    base, generator = weights(), torch.Generator().manual_seed(5)
    kept = {}
    for size in (1e-4, 3e-2):
        tuned = {
            name: (w + size * torch.randn(w.shape, generator=generator)).to(torch.bfloat16)
            if name.removesuffix(".weight") in LINEAR
            else w
            for name, w in base.items()
        }
        place = tmp_path / f"{size}"
        place.mkdir()
        delta = whole(assess(save_source(place / "base", base), save_source(place / "source", tuned))).delta
        kept[size] = (delta.sign_kept, delta.cosine)

    assert kept[1e-4][1] < 0.1
    assert kept[3e-2][0] > 0.85
    assert kept[3e-2][1] > 0.95
