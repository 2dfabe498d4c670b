"""Every shipped recipe by its command, on a model of 64 columns and a CPU: a proven folder, or one line that says why not."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from app.__main__ import main  # noqa: E402
from gates import artefact  # noqa: E402
from quantizer.cli_train import VERBS  # noqa: E402
from quantizer.nano import rows  # noqa: E402
from quantizer.recipe import load_recipe, shipped  # noqa: E402
from quantizer.recipe_values import Recipe  # noqa: E402
from tests.quantizer import folders  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

REFUSED = {
    "svdquant": "svdquant is a report: no server loads its branch",
    "autoround": "pip install auto-round compressed-tensors",
}
"""Recipes that make no folder here, and what they say; AutoRound makes one where it is installed."""
SHORT_TRAINING = ("train.max_steps=2", "train.batch_tokens=1024", "train.micro_tokens=512", "train.save=9")
SHORT = {"auto_mixed": ("auto.samples=1",), "autoround": ("rounding.steps=2", "rounding.tokens=64")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recipes")
    for build in folders.BUILDS:
        folders.save(build, made / build.__name__)
    rows.write(made / "data.jsonl", 4)
    return made


def verb(recipe: Recipe) -> str:
    """The command that takes it."""
    if recipe.train is None:
        return "ptq"
    losses = {name: (kinds, quantized) for name, (_, kinds, quantized) in VERBS.items()}
    return next(n for n, (k, q) in losses.items() if recipe.train.loss in k and recipe.train.quantized == q)


def refusal(name: str) -> str:
    return "" if name == "autoround" and find_spec("auto_round") else REFUSED.get(name, "")


@pytest.mark.parametrize("name", shipped())
def test_a_recipe_ends_in_a_proven_folder_or_says_in_one_line_why_not(
    name: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sealed, sound by its own bytes, and of the recipe's name."""
    recipe, out = load_recipe(name), tmp_path / "out"
    source = place / ("qwen3_5" if recipe.layers.deltanet is False else "qwen3")
    changes = (*(SHORT_TRAINING if recipe.train else ()), *SHORT.get(name, ()))
    given = ["--source", str(source), "--data", str(place / "data.jsonl"), "--out", str(out)]
    flags = [*given, "--device", "cpu", "--json", *(f for change in changes for f in ("--set", change))]
    code = main(["quantize", verb(recipe), "--recipe", name, *flags])
    told = capsys.readouterr()

    if why := refusal(name):
        assert code == 69 and why in told.err.strip().splitlines()[-1] and not out.exists()
        return
    assert code == 0, told.err
    made = artefact.load(out)
    assert artefact.verify(out) == [] and made.root == json.loads(told.out)["root"]
    assert made.provenance.recipe["name"] == name
    if made.format == "hf-nvfp4":
        assert main(["quantize", "verify", str(out), "--source", str(source)]) == 0
    else:
        assert (name, made.format) == ("sft", "hf-bf16")
