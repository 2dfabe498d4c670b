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


# ----------------------------------------------------------------------------------------------- whole runs


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
