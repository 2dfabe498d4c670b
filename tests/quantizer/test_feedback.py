"""Rounding with error feedback: nearer at the output, plain NVFP4 in bytes, and heavier where a fine-tune acts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.core.errors import RecipeError, SourceError  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.nvfp4 import blocks, grid  # noqa: E402
from quantizer.ptq import feedback, scales  # noqa: E402
from quantizer.ptq.calibrate import gram  # noqa: E402
from quantizer.ptq.quantize import run  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.verify.check import verify  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def problem(seed: int = 0, columns: int = 160) -> tuple[Any, Any, Any]:
    """A weight, its steps, and inputs of which many are alike."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(24, columns, generator=generator)
    few = torch.randn(600, 20, generator=generator) @ torch.randn(20, columns, generator=generator)
    inputs = few + 0.3 * torch.randn(600, columns, generator=generator)
    second = blocks.tensor_scale(weight.abs().amax())
    return weight, blocks.step(scales.sweep(weight, second), second), inputs


def one_by_one(weight: Any, step: Any, hessian: Any, damping: float) -> Any:
    """As the paper has it first: after each column, the best change of all that are left, from the inverse of what is left."""
    exact = hessian.double()
    exact = exact + damping * exact.diagonal().mean() * torch.eye(len(exact), dtype=torch.float64)
    order = hessian.diagonal().argsort(descending=True)
    left, made, steps = weight.double().clone(), torch.zeros_like(weight), step.repeat_interleave(16, dim=-1)
    for place, column in enumerate(order):
        made[:, column] = grid.nearest(left[:, column].float() / steps[:, column]) * steps[:, column]
        rest = order[place:]
        inverse = torch.linalg.inv(exact[rest][:, rest])
        error = (left[:, column] - made[:, column]) / inverse[0, 0]
        left[:, rest] -= error[:, None] * inverse[0][None]
    return made


def test_it_is_the_papers_rounding() -> None:
    weight, step, inputs = problem()
    assert inputs.shape[1] > feedback.COLUMNS  # errors pass from one group of columns to the next
    found = feedback.fed_back(weight, step, feedback.factor_of(gram(inputs), 0.03))
    wanted = one_by_one(weight, step, gram(inputs), 0.03)
    assert (found != wanted).float().mean() < 0.002  # ties, in another precision


# ------------------------------------------------------------------------------------------- with a base


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("feedback")
    folders.save(tiny.qwen3, folder / "tuned")
    folders.save(tiny.qwen3_5, folder / "other")
    conversations.write(folder / "data.jsonl", 4)
    folders.save(before, folder / "base")
    return folder


def before(**more: Any) -> Any:
    model = tiny.qwen3(**more)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01 * torch.randn_like(parameter)
    return model


def made(name: str, place: Path, out: Path, **more: Any) -> Any:
    """What the recipe's artefact says of how the folder came to be."""
    given = {"now": datetime.now(UTC), "device": "cpu", **more}
    artefact = run(load_recipe(name), place / "tuned", place / "data.jsonl", out, **given)
    return artefact.provenance.recipe["outcome"]


def test_a_folder_of_plain_nvfp4_and_another_than_without_a_base(place: Path, tmp_path: Path) -> None:
    delta, plain = tmp_path / "delta", tmp_path / "gptq"
    outcome = made("delta", place, delta, base=place / "base")
    made("gptq", place, plain)
    report = verify(delta, place / "tuned")
    assert report.sound and report.algorithm == "NVFP4"
    assert report.fit is not None
    assert (
        outcome["check"]["sqnr_db"] == pytest.approx(report.fit.sqnr_db, abs=1e-3) and report.fit.sqnr_db < 25
    )
    assert (delta / "model.safetensors").read_bytes() != (plain / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "recipe, base, error, says",
    [
        ("delta", None, RecipeError, "give --base DIR"),
        ("gptq", "base", RecipeError, "has no use for a base"),
        ("delta", "other", SourceError, "model.layers.0.self_attn.q_proj.weight is"),
    ],
)
def test_a_base_that_does_not_fit_is_refused(
    recipe: str, base: str | None, error: type[Exception], says: str, place: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says):
        run(
            load_recipe(recipe), place / "tuned", place / "data.jsonl", tmp_path / "out",
            now=datetime.now(UTC), device="cpu", base=place / base if base else None,
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_what_is_too_much_for_float32_is_factored_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, asked = torch.Generator().manual_seed(0), []
    mixed = torch.randn(1000, 8, generator=generator) @ torch.randn(8, 512, generator=generator)
    own = torch.linalg.cholesky_ex

    def factored(matrix: Any) -> Any:
        asked.append(matrix.dtype)
        return own(matrix)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", factored)
    _, upper = feedback.factor_of(gram(mixed.bfloat16().float()), 2e-6)
    feedback.factor_of(gram(mixed), 0.03)

    assert asked == [torch.float32, torch.float64, torch.float32] and torch.isfinite(upper).all()
