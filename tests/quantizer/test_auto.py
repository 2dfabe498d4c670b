"""The mix of NVFP4 and BF16: scored at what the assistant says, within its budget."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from torch import nn  # noqa: E402

from quantizer.core.batch import Batch, hidden_states  # noqa: E402
from quantizer.core.errors import DataError  # noqa: E402
from quantizer.layers.attach import attach, make_plan  # noqa: E402
from quantizer.layers.linear import nvfp4_layers, unquantized  # noqa: E402
from quantizer.ptq.calibrate import calibrate  # noqa: E402
from quantizer.ptq.knapsack import LayerGroup, bits_of, curve, solve  # noqa: E402
from quantizer.ptq.sensitivity import keep_in_bf16, score  # noqa: E402
from quantizer.recipes.recipe import Layers  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

GROUPS = st.lists(
    st.tuples(st.sampled_from([4, 8, 12, 20]), st.floats(-0.1, 5)).map(
        lambda pair: LayerGroup((f"l{pair}",), 256 * pair[0], pair[1])
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(GROUPS, st.floats(4.5, 16))
def test_a_mix_is_within_its_budget_and_no_group_that_helps_is_left_out(
    groups: list[LayerGroup], budget: float
) -> None:
    mix = solve(groups, budget)
    assert mix.bits <= budget + 1e-6
    assert all(groups[index].divergence > 0 for index in mix.kept)
    for index, group in enumerate(groups):
        if index not in mix.kept and group.divergence > 0:
            assert bits_of(groups, (*mix.kept, index)) > budget


def test_the_curve_goes_from_all_nvfp4_to_all_bf16() -> None:
    groups = [LayerGroup((str(i),), 1024 * (1 + i % 4), 2.0 / (i + 1)) for i in range(20)]
    points = curve(groups)

    assert (points[0].bits, points[0].kept) == (4.5, ())
    assert (points[-1].bits, points[-1].divergence) == (16, 0)
    assert len(points) > 15
    for one, two in itertools.pairwise(points):
        assert one.bits < two.bits and one.divergence > two.divergence


def scored(build: Any = tiny.qwen3) -> tuple[Any, Any]:
    """A calibrated model, and its groups."""
    model = build()
    plan = make_plan(model, Layers())
    attach(model, plan)
    calibrate(model, [folders.batch()])
    return model, plan.groups


def assistant_logits(model: Any, batch: Batch) -> Any:
    return model.lm_head(hidden_states(model, batch)[:, :-1][batch.loss_mask])


@torch.no_grad()
def slowly(model: Any, group: tuple[str, ...], batches: list[Batch]) -> float:
    """The divergence with whole forwards, layer by layer unquantized."""
    layers, total = nvfp4_layers(model), 0.0
    for batch in batches:
        with unquantized(model):
            wanted = assistant_logits(model, batch).float().log_softmax(-1)
            for name in group:
                layers[name].active = True
            found = assistant_logits(model, batch).float().log_softmax(-1)
            for name in group:
                layers[name].active = False
        total += float((wanted.exp() * (wanted - found)).sum())
    return total


@pytest.mark.parametrize("build", folders.BUILDS)
def test_a_group_is_scored_alone_at_the_assistants_tokens(build: Any) -> None:
    model, groups = scored(build)
    batches = [folders.batch(1), folders.batch(2, padded=True)]
    for one in score(model, groups, batches):
        assert one.divergence == pytest.approx(slowly(model, one.layers, batches), rel=1e-3, abs=1e-5)
        assert one.divergence > 0
        assert one.weights == sum(model.get_submodule(name).weight.numel() for name in one.layers)


def test_scoring_leaves_the_model_as_it_was() -> None:
    model, groups = scored()
    with torch.no_grad():
        before = model(tiny.tokens()).logits
        score(model, groups, [folders.batch(1)])

    assert torch.equal(model(tiny.tokens()).logits, before)
    assert all(layer.active and layer.held is None for layer in nvfp4_layers(model).values())


def test_what_others_say_does_not_count() -> None:
    model, groups = scored()
    batch = folders.batch(1)
    silent = Batch(batch.ids, torch.full_like(batch.labels, -100), batch.attention)

    with pytest.raises(DataError, match="auto: no token of the assistant's"):
        score(model, groups, [silent])


def test_what_is_kept_is_a_plain_layer_again() -> None:
    model, groups = scored()
    mix = solve(score(model, groups, [folders.batch(1)]), 8.0)
    names = keep_in_bf16(model, groups, mix)

    assert names and all(type(model.get_submodule(name)) is nn.Linear for name in names)
    assert len(nvfp4_layers(model)) == 14 - len(names)
