"""What is looked at before a study, and that it says what it saw."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from quantizer.experiments.nano.recipe import ModelShape
from quantizer.experiments.study import check
from quantizer.experiments.study.graph import Graphs

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
SHAPE = ModelShape(hidden=32, layers=1, heads=2, kv_heads=1, head_dim=16, intermediate=32, vocab=256)


def test_the_same_work_agrees_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graphs, "failed", False)
    found = check.check(SHAPE, 256, "cpu", steps=4)
    assert found["right"] and found["same replies"] == found["replies"]


def test_a_recording_that_failed_is_not_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graphs, "failed", True)
    assert not check.check(SHAPE, 256, "cpu", steps=2)["right"]
