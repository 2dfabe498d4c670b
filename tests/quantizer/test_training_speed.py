"""The bench of training speed: its arithmetic, and all of it on a small shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)
pytest.importorskip("torchao", reason=INSTALL)

from quantizer.experiments.bench import training_speed  # noqa: E402
from quantizer.experiments.bench.training_speed import TINY, kind_of, rule, sorted_parts  # noqa: E402
from quantizer.layers.delta_rule import _Rule  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def test_a_kernel_belongs_to_the_span_it_begins_in() -> None:
    spans = [(10.0, 20.0, "optimizer"), (40.0, 60.0, "head")]
    kernels = [
        (12.0, 14.0, "triton_poi_fused"),
        (19.0, 25.0, "sm90_gemm"),
        (30.0, 33.0, "sm90_gemm"),
        (41.0, 42.0, "x"),
    ]
    parts, names = sorted_parts(spans, kernels)

    assert parts == {"optimizer": 0.01, "matrices": 0.0, "head": 0.0}
    assert names["sm90_gemm"] == [0.01, 2]


@pytest.mark.parametrize(
    "kernel, kind",
    [
        ("nvjet_tst_192x192", "matrices"),
        ("void flash_bwd_kernel", "attention"),
        ("triton_per_fused_amax_3", "compiled, reductions"),
        ("triton_poi_fused_silu_0", "compiled, elementwise"),
        ("void at::native::elementwise_kernel", "other"),
    ],
)
def test_kernels_are_sorted_by_their_names(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


def test_the_rule_is_near_transformers_own() -> None:
    """As every run checks first."""
    told: list[dict[str, Any]] = []
    rule(TINY, "cpu", told.append)
    off = [line for line in told if "distance" in line["name"]]

    assert len(off) == 6
    assert all(float(value) < 1e-2 for line in off for key, value in line.items() if key != "name")


def test_names_for_the_profiler_are_taken_away_again() -> None:
    before = vars(_Rule)["backward"]
    with training_speed.annotated(True):
        assert vars(_Rule)["backward"] is not before

    assert vars(_Rule)["backward"] is before


def test_a_part_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what came before it is in the file."""
    monkeypatch.setenv("PYTHONPATH", str(Path(training_speed.__file__).parents[3]))
    monkeypatch.setattr("sys.executable", "false")
    out = tmp_path / "out.json"
    assert training_speed.main(["--tiny", "--only", "rule", "--json", str(out)]) == 0

    assert json.loads(out.read_text())["results"] == [{"name": "rule", "failed": "exit code 1"}]


@pytest.mark.nightly  # a bench on a GPU; what it trains, test_training_run.py trains
@pytest.mark.slow
def test_a_small_shape_goes_all_the_way() -> None:
    """QAT, with and without recomputation, and all learned."""
    told: list[dict[str, Any]] = []
    training_speed.train("qat", TINY, "cpu", told.append)

    assert len(told) == 3 and all(line["tokens_per_second"] > 0 for line in told)
