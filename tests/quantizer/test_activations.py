"""The study of four-bit activations: three numerics of one pair of folders, as counts and as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: make quantizer")

from quantizer.experiments.study import activations
from quantizer.experiments.study.activations import NUMERICS, measure, table
from quantizer.experiments.study.grid import GRID
from tests.scale import scaled

MODELS = Path(__file__).parents[2] / "models"
PAIR = (MODELS / "annie-nano-hf", MODELS / "annie-nano-nvfp4-hf")

pytestmark = [pytest.mark.torch, pytest.mark.slow]  # a whole model decodes

LONGEST = scaled(210, GRID.prompt)
"""Tokens of a prompt: all are padded to the longest, and BF16 products take a CPU without them long."""


def test_each_numerics_is_counted_on_the_same_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activations, "GRID", replace(GRID, prompt=LONGEST))
    found = measure([PAIR], each=1, device="cpu", reply=3)
    rows = found["rows"]
    assert [row["numerics"] for row in rows] == list(NUMERICS)
    asked = {(row["manners"][1], row["knowledge"][1]) for row in rows}
    assert len(asked) == 1 and rows[0]["same"] == rows[0]["manners"][1] > rows[0]["knowledge"][1] > 0
    assert rows[2]["same"] <= rows[2]["manners"][1]
    assert table(found).count("\n") == 2 + len(NUMERICS)
