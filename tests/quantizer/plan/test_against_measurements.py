"""A plan's peak is within a tenth of every peak that was measured and committed."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)

from quantizer.plan.machine import NAMED  # noqa: E402
from quantizer.plan.memory import DataSize, make_job, phases  # noqa: E402
from quantizer.plan.model import PlannedModel, make_model  # noqa: E402
from quantizer.plan.resources import gguf_needed, plan  # noqa: E402
from quantizer.recipes.recipe import Calibrate, Recipe, Train, load_recipe  # noqa: E402
from quantizer.verify.folder import Folder, TensorInfo  # noqa: E402
from tests.quantizer.plan import sparse  # noqa: E402

pytestmark = pytest.mark.torch

STUDY = Path(__file__).parents[3] / "docs" / "study"
TOLERANCE = 0.10
RATE = 0.10
"""Of tokens a second, on the GPUs that were measured. On another one a plan is an estimate."""
GIB = 2**30


@cache
def shape(name: str) -> PlannedModel:
    config: dict[str, Any] = {
        "9B": sparse.QWEN35_9B,
        "8 layers": sparse.QWEN35_9B | {"num_hidden_layers": 8},
        "27B": sparse.QWEN35_27B,
        "0.47B": sparse.QWEN3_HALF,
    }[name]
    entries = {name: TensorInfo("", "BF16", sizes) for name, sizes in sparse.shapes(config).items()}
    return make_model(Folder(Path(), entries, config, {}))


def by_phase(model: PlannedModel, recipe: Recipe, tokens: int) -> dict[str, int]:
    job = make_job(model, recipe, data=DataSize(1, tokens))
    return {phase.name: phase.on_device for phase in phases(job)}


REAL_SIZE = json.loads((STUDY / "low-bit" / "real_size.json").read_text())["results"]
TRAINED = [row for row in REAL_SIZE if "QAT" in row["name"] or "QAD" in row["name"]]


def settings_of(row: dict[str, Any]) -> Train:
    """What the bench had set for a row: since then `quantizer.bench.training_speed`."""
    kind = "adamw" if "exact" in row["name"] else "adamw_8bit" if "8 bits" in row["name"] else "adamw_4bit"
    return Train(
        loss="kl" if "QAD" in row["name"] else "ce",
        optimizer=kind,  # type: ignore[arg-type]
        recompute=True,
        batch_tokens=row["tokens"],
        micro_tokens=row["tokens"],
    )


def shape_of(row: dict[str, Any]) -> PlannedModel:
    return shape("8 layers" if row["name"].startswith("8 layers") else row["name"].partition(" ")[0])


@pytest.mark.parametrize("row", TRAINED, ids=[f"{row['name']}, {row['rows']} rows" for row in TRAINED])
def test_training_of_a_real_size(row: dict[str, Any]) -> None:
    model, tokens = shape_of(row), row["tokens"] // row["rows"]
    one_row = Calibrate(max_tokens=tokens, batch_tokens=tokens)  # the bench calibrates with one row
    planned = by_phase(model, Recipe("bench", calibrate=one_row, train=settings_of(row)), tokens)

    assert model.parameters == row["parameters"]
    for phase, measured in row["parts"].items():
        if phase != "build":
            assert planned[phase] == pytest.approx(measured["allocated_gib"] * GIB, rel=TOLERANCE), phase


HALF = json.loads((STUDY / "bench.json").read_text())["results"]
SUBJECTS = {
    "qat": Train(batch_tokens=16384, micro_tokens=16384),
    "qad": Train(batch_tokens=16384, micro_tokens=16384, loss="kl"),
    "sft": Train(batch_tokens=16384, micro_tokens=16384, quantized=False),
}
"""Those of the bench that are ours; the plain ones are transformers' loop."""


TRAINED = json.loads((STUDY / "low-bit" / "training_speed.json").read_text())["results"]
CHUNKED = [row for row in TRAINED if "tokens_per_second" in row]


def chunked(row: dict[str, Any]) -> Recipe:
    """The recipe of a row of the 9B shape on our own recurrence."""
    words = row["name"].replace(",", "").split()
    kept = int(words[words.index("layers") - 1]) if "layers" in words else 0
    train = Train(
        loss="kl" if words[0] == "qad" else "ce", kept_layers=kept, recompute=True, optimizer="adamw_8bit"
    )
    return Recipe("bench", train=train)


@pytest.mark.parametrize("row", CHUNKED, ids=[row["name"] for row in CHUNKED])
def test_training_by_chunks(row: dict[str, Any]) -> None:
    made = plan(shape("9B"), chunked(row), NAMED["h200"])
    (train,) = [phase for phase in made.phases if phase.name == "train"]

    assert train.on_device == pytest.approx(row["allocated_gib"] * GIB, rel=TOLERANCE)
    if "before" not in row:
        assert made.tokens_per_second == pytest.approx(row["tokens_per_second"], rel=RATE)


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_rate_of_half_a_billion(name: str) -> None:
    (measured,) = [row["tokens_per_second"] for row in HALF if row["name"] == name]
    made = plan(shape("0.47B"), Recipe("bench", train=SUBJECTS[name]), NAMED["h100"])

    assert made.tokens_per_second == pytest.approx(measured, rel=RATE)


STEPS = {row["name"]: row for row in json.loads((STUDY / "whole-path.json").read_text())["steps"]}
DATA = {"default": DataSize(512, 323_323), "awq_lite": DataSize(128, 86_599)}
"""The conversations that each recipe took, in tokens."""


@pytest.mark.parametrize("step, name", [("ptq", "default"), ("awq", "awq_lite")])
def test_quantization_of_the_real_size(step: str, name: str) -> None:
    made, row = plan(shape("9B"), load_recipe(name), NAMED["h200"], DATA[name]), STEPS[step]

    assert made.peak_device == pytest.approx(row["device_allocated_gib"] * GIB, rel=TOLERANCE)
    assert made.peak_host == pytest.approx(row["host_gib"] * GIB, rel=TOLERANCE)
    assert made.seconds and sum(made.seconds.values()) == pytest.approx(row["seconds"], rel=RATE)
    assert made.disk["result"] == pytest.approx(row["bytes"], rel=0.01)


def test_a_gguf_of_the_real_size() -> None:
    needed, row = gguf_needed(shape("9B"), "q4_k_m"), STEPS["gguf"]

    assert needed["memory"] == pytest.approx(row["host_gib"] * GIB, rel=TOLERANCE)
    assert needed["disk"] == pytest.approx(row["bytes"], rel=TOLERANCE)
