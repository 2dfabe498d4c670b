"""Choosing layers by pattern, and putting them in place without touching a weight."""

from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)


from quantizer.core.errors import RecipeError  # noqa: E402
from quantizer.layers.attach import make_plan  # noqa: E402
from quantizer.recipes.recipe import Layers  # noqa: E402
from tests.quantizer import tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
ATTENTION, MLP = "model.layers.1.self_attn", "model.layers.1.mlp"


def kinds(names: Any) -> set[str]:
    return {name.rpartition(".")[2] for name in names}


@pytest.mark.parametrize(
    "build, layers, kept",
    [
        (tiny.qwen3, 14, {"lm_head", "embed_tokens"}),
        (tiny.qwen3_5, 25, {"lm_head", "embed_tokens", "conv1d", "in_proj_a", "in_proj_b"}),
    ],
)
def test_every_linear_layer_is_meant_but_those_that_never_are(
    build: Any, layers: int, kept: set[str]
) -> None:
    plan = make_plan(build(), Layers())

    assert len(plan.layers) == layers
    assert kinds(plan.kept) == kept


CHOICES = [
    (Layers(include=("*.mlp.*",)), 12, {"gate_proj", "up_proj", "down_proj"}),
    (
        Layers(include=("*.self_attn.*", "*.out_proj")),
        7,
        {"q_proj", "k_proj", "v_proj", "o_proj", "out_proj"},
    ),
    (Layers(exclude=("*.mlp.*", "*.linear_attn.*")), 4, {"q_proj", "k_proj", "v_proj", "o_proj"}),
    (Layers(exclude=("lm_head", "*embed_tokens", "*conv1d")), 25, None),
    (
        Layers(deltanet=False),
        16,
        {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
    ),
    (Layers(first=1, last=1), 12, None),
    (Layers(first=3), 7, {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
]


@pytest.mark.parametrize("wanted, count, found", CHOICES)
def test_patterns_and_places_choose(wanted: Layers, count: int, found: set[str] | None) -> None:
    plan = make_plan(tiny.qwen3_5(), wanted)

    assert len(plan.layers) == count
    assert found is None or kinds(plan.layers) == found


WRONG = [
    (
        Layers(include=("*.mlp", "*")),
        "layers.include: '*.mlp' matches no layer of this model; names look like model.",
    ),
    (Layers(exclude=("*.layer.0.*",)), "layers.exclude: '*.layer.0.*' matches no layer of this model"),
    (Layers(include=("lm_head",)), "layers.include: 'lm_head' matches no layer"),
    (Layers(exclude=("*",)), "layers: every linear layer is left out, so nothing is left for NVFP4"),
    (Layers(first=1, last=1), "layers: first and last leave out all of this model's 2 decoder layers"),
    (Layers(deltanet=False), "layers.deltanet: this model has no DeltaNet layer; leave the key out"),
    (
        Layers(exclude=(f"{ATTENTION}.k_proj",)),
        f"layers: a server joins {ATTENTION}.q_proj, {ATTENTION}.v_proj with {ATTENTION}.k_proj: all in one format, or none",
    ),
]


@pytest.mark.parametrize("wanted, line", WRONG)
def test_a_choice_that_cannot_be_is_one_line(wanted: Layers, line: str) -> None:
    with pytest.raises(RecipeError) as error:
        make_plan(tiny.qwen3(), wanted)

    assert str(error.value).startswith(line)
