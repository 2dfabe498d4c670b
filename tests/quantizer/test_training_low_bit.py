"""Gradients applied inside backward, with low-bit moments and stochastic rounding, beside the exact optimizer."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)
pytest.importorskip("torchao", reason=INSTALL)

from gates.decode.decoder import DecodeError  # noqa: E402
from quantizer.recipes.recipe import Train  # noqa: E402
from quantizer.train import optimizer_in_backward  # noqa: E402
from quantizer.train.optimizer_in_backward import OptimizerInBackward  # noqa: E402
from quantizer.train.speed import recompute  # noqa: E402
from tests.quantizer import tiny  # noqa: E402
from tests.quantizer.learners import QAD, QAT, losses, silent, trainer  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
LOW: dict[str, Any] = {"optimizer": "adamw_8bit", "batch_tokens": 256, "micro_tokens": 256}
LOW_QAT = replace(QAT, precision="bf16", **LOW)


def low_bit(named: dict[str, Any], **more: Any) -> OptimizerInBackward:
    settings = Train(**{"optimizer": "adamw_8bit", "lr": 1e-2, "clip": 0.0, "weight_decay": 0.1, **more})
    return OptimizerInBackward(named.items(), settings)


def parameter(*shape: int, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(0)
    return torch.nn.Parameter(torch.randn(*shape).to(dtype))


def move(optimizer: OptimizerInBackward, loss: Any, lr: float = 1e-2) -> Any:
    optimizer.begin(lr)
    loss.backward()
    return optimizer.finish()


# --------------------------------------------------------------------------------------------------- a step


@pytest.mark.parametrize("chunk", [2**25, 1024], ids=["whole", "in chunks"])
@pytest.mark.parametrize("shape", [(64, 256), (300,)], ids=["matrix", "vector"])
def test_the_first_step_is_adamws(
    shape: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer_in_backward, "CHUNK", chunk)
    ours, theirs = parameter(*shape), parameter(*shape)
    move(low_bit({"w": ours}), (ours.square() * 0.5).sum())
    decay = 0.1 if len(shape) == 2 else 0.0
    adam = torch.optim.AdamW([theirs], lr=1e-2, betas=(0.9, 0.95), weight_decay=decay)
    (theirs.square() * 0.5).sum().backward()
    adam.step()

    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_stochastic_rounding_keeps_the_mean() -> None:
    ours = torch.nn.Parameter(torch.ones(256, 256, dtype=torch.bfloat16))
    torch.manual_seed(1)
    move(low_bit({"w": ours}, weight_decay=0.0), ours.sum(), lr=1e-3)
    below = 1 - 2**-8  # BF16's neighbour of 1 on the way down

    assert set(ours.detach().float().unique().tolist()) == {below, 1.0}
    assert float(ours.detach().float().mean()) == pytest.approx(1 - 1e-3, abs=4 * 2**-8 * 0.5 / 256)


# ------------------------------------------------------------------------------------------------- clipping


def test_gradients_of_steady_shares_are_clipped_as_the_whole_is() -> None:
    ours = {"a": parameter(64, 256), "b": parameter(32, 256)}
    optimizer = low_bit(ours, clip=1.0, weight_decay=0.0)
    seen: dict[str, Any] = {}
    for name, p in ours.items():
        seen[name] = torch.autograd.grad(p.square().sum() * 3, p)[0]
    with optimizer.measuring():
        sum(p.square().sum() * 3 for p in ours.values()).backward()
    length = move(optimizer, sum(p.square().sum() * 3 for p in ours.values()))
    whole = torch.sqrt(sum(g.square().sum() for g in seen.values()))

    assert float(length) == pytest.approx(float(whole), rel=1e-5)
    for name, p in ours.items():
        moment = optimizer._optimizers[name].state[optimizer._parts[name][0]]["exp_avg"].dequantize()
        torch.testing.assert_close(moment.view_as(p), 0.1 * seen[name] / whole, rtol=0.1, atol=1e-4)


# ----------------------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("optimizer", ["adamw_8bit", "adamw_4bit"])
def test_no_gradient_is_kept_after_backward(optimizer: Any) -> None:
    ours = trainer(replace(LOW_QAT, optimizer=optimizer), hold=None)
    recompute(ours.learner.model)
    before = {name: p.detach().clone() for name, p in ours.learner.model.named_parameters()}
    in_backward: Any = ours.optimizer
    in_backward.begin(1e-3)
    ours._backward(ours.steps[0][0], 10)

    assert all(p.grad is None for p in ours.learner.model.parameters())
    for name, p in ours.learner.model.named_parameters():  # matrices have moved, vectors move at the end
        assert torch.equal(p, before[name]) == (p.ndim < 2), name
    assert all(p.grad is None for parts in in_backward._parts.values() for p in parts)
    assert all(len(step) == 1 for step in ours.steps)


@pytest.mark.parametrize("bits, most", [(8, 4.2), (4, 3.3)])
def test_a_parameter_takes_few_bytes(bits: int, most: float) -> None:
    model = tiny.qwen3(hidden_size=256, intermediate_size=512).bfloat16()
    named = [(n, p) for n, p in model.named_parameters() if p.ndim == 2]
    ours = OptimizerInBackward(named, Train(optimizer=f"adamw_{bits}bit"))  # type: ignore[arg-type]
    count = sum(p.numel() for _, p in named)
    moments = [tensor for held in ours.state()["moments"].values() for tensor in held]

    assert 2 + sum(tensor.nbytes for tensor in moments) / count < most


@pytest.mark.parametrize("settings", [LOW_QAT, replace(QAD, precision="bf16", **LOW)], ids=["qat", "qad"])
def test_a_run_goes_on_as_if_nothing_had_happened(settings: Train) -> None:
    settings = replace(settings, epochs=1, save=2)
    states: dict[int, Any] = {}
    whole = trainer(settings, hold=None)
    torch.manual_seed(0)
    whole.run(silent, lambda: states.update({whole.step: deepcopy(whole.state())}))

    for state in states.values():
        again = trainer(settings, hold=None)
        again.restore(state)
        assert losses(again.run(silent)) == losses(whole.records)
        for name, p in whole.weights.model.items():
            assert torch.equal(again.weights.model[name], p)
    assert len(states) >= 2


@pytest.mark.parametrize(
    "more, words",
    [
        ({"batch_tokens": 8192}, "must be micro_tokens"),
        ({"trained": "scales"}, "trains weights"),
    ],
)
def test_what_low_bit_training_cannot_do_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        Train(**{"optimizer": "adamw_8bit", **more})
