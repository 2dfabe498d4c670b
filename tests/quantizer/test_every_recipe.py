"""Every shipped recipe by its command: a sealed folder that `manners quantize verify` finds sound, or one line that says why not.

On a CPU in small; `make test-gpu-recipes` runs it on a GPU with annie-nano and nothing changed in a recipe.
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from app.__main__ import main  # noqa: E402
from gates.artefact import artefact  # noqa: E402
from quantizer.cli.train import VERBS  # noqa: E402
from quantizer.recipes.recipe import Recipe, load_recipe, shipped_recipes  # noqa: E402
from tests.quantizer import folders  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
DEVICE = os.environ.get("RECIPES_DEVICE", "cpu")
SMALL = DEVICE == "cpu"
FEWER_STEPS = ("train.max_steps=2", "train.batch_tokens=1024", "train.micro_tokens=512", "train.save=9")
FEWER = {"auto_mixed": ("auto.samples=1",), "autoround": ("rounding.steps=2", "rounding.tokens=64")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.with_data(tmp_path_factory.mktemp("recipes"), 4 if SMALL else 1024)


def verb(recipe: Recipe) -> str:
    """The command that takes it."""
    if recipe.train is None:
        return "ptq"
    losses = {name: (kinds, quantized) for name, (_, kinds, quantized) in VERBS.items()}
    return next(n for n, (k, q) in losses.items() if recipe.train.loss in k and recipe.train.quantized == q)


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_recipe_ends_in_a_proven_folder_or_says_in_one_line_why_not(
    name: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = load_recipe(name), tmp_path / "out"
    dense = place / "qwen3" if SMALL else folders.NANO
    source = place / "qwen3_5" if recipe.layers.deltanet is False else dense
    given = ["--recipe", name, "--source", source, "--data", place / "data.jsonl", "--out", out]
    given += ["--base", source] if recipe.feedback and recipe.feedback.delta > 0 else []
    changes = (*(FEWER_STEPS if recipe.train else ()), *FEWER.get(name, ())) if SMALL else ()
    given += [flag for change in changes for flag in ("--set", change)]
    code = main(["quantize", verb(recipe), *map(str, given), "--device", DEVICE, "--json"])
    said, told = capsys.readouterr()

    if name == "autoround" and not find_spec("auto_round"):
        assert code == 69 and not out.exists()
        assert "auto_round is not installed: pip install auto-round compressed-tensors" in told
        return
    assert code == 0, told
    made, facts = artefact.load(out), json.loads(said)
    assert artefact.verify(out) == [] and made.root == facts["root"]
    assert made.provenance.recipe["name"] == name
    if name == "sft":
        assert made.format == "hf-bf16"
        return
    assert made.format == "hf-nvfp4" and facts["check"]["sqnr_db"] > 10
    assert facts["check"]["parity"]["equal"] == facts["check"]["parity"]["tokens"] > 0
    assert main(["quantize", "verify", str(out), "--source", str(source)]) == 0
