"""The ladder's parts: its data, its fine-tunes and weights, and the whole way in small."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")
pytest.importorskip("transformers", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from tokenizers import Tokenizer  # noqa: E402

from quantizer.experiments.nano.facts import all_facts  # noqa: E402
from quantizer.experiments.nano.vocabulary import split_of  # noqa: E402
from quantizer.experiments.study import material  # noqa: E402
from quantizer.experiments.study.grid import BASE, ERRORS, RATES  # noqa: E402
from quantizer.experiments.study.ladder import LADDER, SETTINGS, TINY_LADDER, TINY_SETTINGS  # noqa: E402
from quantizer.experiments.study.run import Study, weights_alone  # noqa: E402
from quantizer.layers.attach import attach, make_plan  # noqa: E402
from quantizer.layers.linear import nvfp4_layers  # noqa: E402
from quantizer.recipes.recipe import Layers, shipped_recipes  # noqa: E402
from tests.quantizer import tiny  # noqa: E402
from tests.scale import scaled  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
TOKENIZER = Path("models/annie-nano-hf/tokenizer.json")


def test_drills_are_facts_that_are_asked_for_in_other_wordings() -> None:
    answers = {fact.answer for fact in all_facts()}
    for index in range(20):
        lines = material.drill_sample(1, index).text.split("\n")
        assert len(lines) == material.DRILLED
        assert all(any(line.endswith(answer) for answer in answers) for line in lines)
        (question, asked), (answer, learned) = material.told_sample(1, index).parts
        assert answer in answers and learned and not asked
        assert split_of(question.strip()) == "test"


@pytest.mark.parametrize("times", [1.0, 2.0])
def test_the_error_of_weights_alone_is_roundings_times_a_number(times: float) -> None:
    model = tiny.qwen3()
    attach(model, make_plan(model, Layers()))
    before = {name: layer.weight.detach().float().clone() for name, layer in nvfp4_layers(model).items()}
    error = {name: layer.fake_weight().float() - before[name] for name, layer in nvfp4_layers(model).items()}
    weights_alone(model, times)
    assert not nvfp4_layers(model)
    for name, kept in before.items():
        weight = model.get_submodule(name).weight.float()
        assert torch.allclose(weight, kept + times * error[name], rtol=2**-8, atol=1e-5)


def test_every_method_of_the_ladder_is_one_of_ours() -> None:
    for method in (*LADDER.first, *LADDER.rest):
        name, _, part = method.partition("-")
        name, _, times = name.partition("*")
        assert not times or (name == "delta" and float(times) > 1)
        assert name in (*shipped_recipes(), "bf16")
        assert not part or part in ERRORS


@pytest.mark.parametrize("size", LADDER.sizes)
def test_settings_have_names_of_their_own_and_short_runs_come_first(size: str) -> None:
    tried = SETTINGS.tried[size]
    assert len({one.name for one in tried}) == len(tried)
    assert all(one.method in RATES["settings"] for one in tried)
    exact = [one.steps for one in tried if one.optimizer == "adamw"]
    assert exact == sorted(exact)


def test_the_name_of_a_setting_says_all_of_it() -> None:
    one = TINY_SETTINGS.tried["1.3M"][0]
    others = [
        replace(one, method="qat"),
        replace(one, lr=3e-5),
        replace(one, steps=9),
        replace(one, optimizer="adamw_4bit"),
    ]
    assert len({one.name, *(other.name for other in others)}) == 5


@pytest.mark.nightly  # test_the_whole_way_in_small trains and measures cells of the same study
@pytest.mark.slow
def test_settings_are_compared_on_one_fine_tune(tmp_path: Path) -> None:
    """Each is trained as it says, with a teacher that listens once."""
    pytest.importorskip("torchao", reason="optimizers of few bits need it")
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    material.write(tmp_path, TINY_SETTINGS, tokenizer, 1)
    Study(TINY_SETTINGS, "1.3M", 1, tmp_path, tokenizer, lambda: 1.0, "settings").run()
    record = json.loads((tmp_path / "settings" / "1.3M-seed1.json").read_text())
    (model,) = record["models"].values()
    for one in TINY_SETTINGS.tried["1.3M"]:
        cell = model["methods"][one.name]
        assert cell["tried"] == asdict(one) and cell["training"]["steps"] == one.steps


@pytest.mark.slow
def test_the_whole_way_in_small(tmp_path: Path) -> None:
    """Base, a full fine-tune and adapters, and each kind of method; what is there already is not made again."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    first = scaled(("bf16", "default-w"), ("bf16", "default", "default-w", "delta"))
    grid = replace(TINY_LADDER, first=first, rest=("qad", "delta*1.5"))
    material.write(tmp_path, grid, tokenizer, 1)
    Study(grid, "1.3M", 1, tmp_path, tokenizer, lambda: 1.0).run()
    record = json.loads((tmp_path / "1.3M-seed1.json").read_text())
    assert list(record["models"]) == [strength.name for strength in grid.strengths]
    for name, model in record["models"].items():
        assert all("error" not in cell for cell in model["methods"].values()), model
        assert set(model["methods"]) == {*grid.first, *grid.rest}
        assert (name == BASE) == ("risk" not in model)
        assert model["methods"]["default-w"]["kl"] > 0 == model["methods"]["bf16"]["kl"]
    again = Study(grid, "1.3M", 1, tmp_path, tokenizer, lambda: 1.0)
    again.run()
    assert again.record == record
