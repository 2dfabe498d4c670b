"""The training loop: the plain loop's numbers step by step, what is trained is served, and a run that can be gone on with."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.core.errors import QuantizerError  # noqa: E402
from quantizer.layers.attach import refresh_weight_amax  # noqa: E402
from quantizer.recipes.recipe import Lora, Train  # noqa: E402
from quantizer.train import lora  # noqa: E402
from tests.quantizer.learners import (  # noqa: E402
    LSQ,
    PLAIN,
    QAD,
    QAT,
    learner,
    losses,
    plain_loop,
    silent,
    trainer,
)

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def parameters(model: Any) -> dict[str, Any]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """To the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# --------------------------------------------------------------------------------- the plain loop's numbers


@pytest.mark.parametrize("settings", [PLAIN, replace(PLAIN, micro_tokens=64)], ids=["whole", "in parts"])
def test_losses_and_weights_are_the_plain_loops(settings: Train) -> None:
    ours = trainer(settings)
    plain = learner(settings).model.train()
    wanted = plain_loop(plain, ours.steps, list(ours.samples), settings, len(ours.steps))

    assert losses(ours.run(silent)) == pytest.approx(wanted, rel=1e-5)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(ours.weights.model[name], parameter, rtol=2e-3, atol=2e-4)


def test_quantized_losses_are_the_plain_loops_too() -> None:
    ours = trainer(QAT)
    wanted = plain_loop(learner(QAT).model.train(), ours.steps, list(ours.samples), QAT, len(ours.steps))
    found = losses(ours.run(silent))

    assert found[0] == pytest.approx(wanted[0], rel=1e-6)
    assert found == pytest.approx(wanted, rel=5e-3)


# ------------------------------------------------------------------------------------------------ adapters


def test_the_gradients_of_adapters_are_those_of_their_product() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(6, 8))
    weights = lora.Adapters([("w", weight)], Lora(2, 3.0), seed=0)
    torch.nn.init.normal_(weights.masters["w.up"])
    weights.spread()
    x = torch.randn(5, 8)
    for _ in range(2):  # two micro-batches
        (weight @ x.T).square().sum().backward()
        weights.collect()
    down, up = (weights.masters[f"w.{part}"].detach().clone().requires_grad_() for part in ("down", "up"))
    (2 * ((weights.base["w"] + 1.5 * up @ down) @ x.T).square().sum()).backward()

    assert weight.grad is None
    torch.testing.assert_close(weights.masters["w.down"].grad, down.grad)
    torch.testing.assert_close(weights.masters["w.up"].grad, up.grad)


# ----------------------------------------------------------------------------------------------- going on


@pytest.mark.parametrize("settings", [QAT, replace(QAD, precision="bf16"), LSQ], ids=["qat", "qad", "lsq"])
def test_a_run_goes_on_as_if_nothing_had_happened(settings: Train) -> None:
    settings = replace(settings, epochs=3, save=2)
    states: dict[int, Any] = {}
    whole: Any = trainer(settings, refresh=lambda: refresh_weight_amax(whole.learner.model))
    whole.run(silent, lambda: states.update({whole.step: deepcopy(whole.state())}))

    for step, state in states.items():
        again: Any = trainer(settings, refresh=lambda: refresh_weight_amax(again.learner.model))  # noqa: B023
        again.restore(state)
        assert again.step == step
        assert losses(again.run(silent)) == losses(whole.records)
        assert same(parameters(again.learner.model), parameters(whole.learner.model))
    assert sorted(states) == [2, 4, 6]


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    ours = trainer(replace(PLAIN, lr=1.0, clip=0.0, epochs=20, betas=(0.0, 0.0)))
    with torch.no_grad():
        next(ours.learner.parameters()).fill_(torch.inf)
    with pytest.raises(QuantizerError, match=r"step 1: the loss is nan; train with a smaller lr"):
        ours.run(silent)
