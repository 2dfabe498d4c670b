"""Every shipped recipe by its command, on a model of 64 columns and a CPU: a proven folder, or one line that says why not."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.recipes.recipe import shipped_recipes  # noqa: E402
from tests.quantizer import every_recipe  # noqa: E402
from tests.quantizer.every_recipe import PROVEN, REFUSED, Place, attempt, settle  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return settle(tmp_path_factory.mktemp("recipes"), small=True, conversations=4)


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_recipe_ends_in_a_proven_folder_or_says_in_one_line_why_not(
    name: str, place: Place, tmp_path: Path
) -> None:
    found = attempt(name, place, tmp_path / "out", "cpu", small=True)
    if name == "autoround" and not find_spec("auto_round"):
        assert found.verdict == REFUSED and not (tmp_path / "out").exists()
        assert "auto_round is not installed: pip install auto-round compressed-tensors" in found.reason
        return
    assert found.verdict == PROVEN, found.reason
    assert (found.sqnr_db or 0) > 10 or name == "sft"


def test_every_recipe_of_the_committed_run_on_a_gpu_was_proven_and_its_page_is_of_its_numbers() -> None:
    folder = Path(__file__).parents[2] / "docs" / "study" / "recipes"
    told = json.loads((folder / "recipes.json").read_text())
    found = [every_recipe.Outcome(**one) for one in told["recipes"]]
    assert {one.recipe for one in found} <= set(shipped_recipes())
    assert all(one.verdict == PROVEN for one in found)
    assert all(one.equal is None or one.equal[0] == one.equal[1] for one in found)
    assert (folder / "recipes.md").read_text() == "\n".join(every_recipe.page(told["about"], found)) + "\n"
