"""The report on a low-rank branch: what it would save, measured at the output."""

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.layers.attach import attach, make_plan  # noqa: E402
from quantizer.layers.linear import nvfp4_layers  # noqa: E402
from quantizer.ptq.calibrate import observe  # noqa: E402
from quantizer.ptq.svdquant import report  # noqa: E402
from quantizer.recipes.recipe import Layers  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def test_a_branch_saves_error_and_costs_bits() -> None:
    model = tiny.qwen3()
    attach(model, make_plan(model, Layers()))
    seen = observe(model, [folders.batch()], nvfp4_layers(model))
    small, large = report(model, seen, 4), report(model, seen, 16)

    assert small == report(model, seen, 4)
    assert sum(two.branch < one.branch < one.plain for one, two in zip(small, large, strict=True)) >= 12
    assert small[0].bits == 4.5 + 16 * 4 * (64 + 64) / (64 * 64)
