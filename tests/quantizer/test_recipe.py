"""Recipes: what is wrong with one is a line that names the key."""

import pytest

from quantizer.core.errors import RecipeError
from quantizer.recipes.recipe import load_recipe, parse_recipe


@pytest.mark.parametrize(
    "name, parameters, lr",
    [
        ("qad", 3_000_000, 1e-4),
        ("qad", 3_000_001, 1e-5),
        ("qad", 200_000_000, 1e-4),
        ("qad", 200_000_001, 3e-6),
        ("lsq", 1_300_000, 3e-4),
        ("lsq", 9_000_000_000, 1e-4),
    ],
)
def test_the_peak_learning_rate_is_that_of_the_models_size(name: str, parameters: int, lr: float) -> None:
    train = load_recipe(name).for_size(parameters).train

    assert train is not None
    assert (train.lr, train.lr_up_to) == (lr, None)


WRONG = [
    ("weigths = 1", "weigths: unknown key; did you mean 'weights'?"),
    ("[weights]\nscales = 'best'", "weights.scales: must be one of max, mse, four_over_six, not 'best'"),
    ("[train]\nlr = 2.0", "train.lr: must be a number of at least 0 and at most 1, not 2.0"),
    (
        "[train]\nlr_up_to = [{ parameters = 2, lr = 0.1 }, { parameters = 2, lr = 0.2 }]",
        "train.lr_up_to: must be in rising order of parameters",
    ),
    ("[train]\nepochs = true", "train.epochs: must be a number of at least 0.001 and at most 1000, not True"),
    ("[train]\nbetas = [0.9]", "train.betas: must be two numbers below 1"),
    ("[train]\nmicro_tokens = 9999", "train.micro_tokens: must not be more than batch_tokens"),
    (
        '[train]\nquantized = false\ntrained = "scales"',
        'train.trained: scales cannot be trained where "quantized" is false',
    ),
    ("[layers]\ninclude = []", "layers.include: must be a list that is not empty, not []"),
    ("[layers]\nexclude = '*o_proj'", "layers.exclude: must be a list, not '*o_proj'"),
    ("[lora]\nrank = 8", 'lora: needs a [train] of "weights"'),
    ("[feedback]\n[train]", "feedback: cannot be joined with train"),
    (
        "backend = 'auto_round'\nactivations = 'bf16'",
        "activations: auto_round rounds inputs, too; leave the key out",
    ),
    ("backend = 'auto_round'\n[awq]", "backend: auto_round takes no [awq]"),
    ("[rounding]\nsteps = 5", 'rounding: is AutoRound\'s; needs backend = "auto_round"'),
    (
        "backend = 'auto_round'\n[weights]\nscales = 'mse'",
        "weights: AutoRound finds its own scales; leave the section out",
    ),
    ("[layers", "not TOML (Expected ']' at the end of a table declaration (at end of document))"),
]


@pytest.mark.parametrize("text, line", WRONG)
def test_what_is_wrong_with_a_recipe_is_one_line(text: str, line: str) -> None:
    with pytest.raises(RecipeError) as error:
        parse_recipe(text, "mine", "mine.toml")

    assert str(error.value) == f"mine.toml: {line}"


@pytest.mark.parametrize(
    "change, line",
    [
        ("train.lrr=1", "train.lrr: unknown key; did you mean 'lr'?"),
        ("lr", "'lr' is not an assignment, as train.lr=1e-6 is"),
        ("=3", "'=3' is not an assignment, as train.lr=1e-6 is"),
        ("description.x=3", "description.x: description is not a table"),
    ],
)
def test_a_wrong_change_is_one_line(change: str, line: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe("qat", [change])

    assert str(error.value).endswith(f"qat.toml: {line}")


@pytest.mark.parametrize(
    "name, line",
    [
        ("defualt", "defualt: no such recipe; did you mean 'default'?; or give the path of a file"),
        ("nowhere.toml", "nowhere.toml: cannot be read (No such file or directory)"),
    ],
)
def test_a_recipe_that_is_not_there_is_one_line(name: str, line: str) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe(name)

    assert str(error.value) == line
