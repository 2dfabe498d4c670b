"""The mix of NVFP4 and BF16: scored at what the assistant says, within its budget."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)


from quantizer.core.batch import Batch  # noqa: E402
from quantizer.core.decoder import hidden_states  # noqa: E402
from quantizer.layers.attach import attach, make_plan  # noqa: E402
from quantizer.layers.linear import nvfp4_layers, unquantized  # noqa: E402
from quantizer.ptq.calibrate import calibrate  # noqa: E402
from quantizer.ptq.sensitivity import LayerGroup, bits_of, score, solve  # noqa: E402
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
