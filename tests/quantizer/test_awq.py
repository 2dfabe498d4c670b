"""AWQ by one Gram matrix, and folded so that the model computes what it did."""

import copy
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from torch import nn  # noqa: E402

from quantizer.core.decoder import hidden_states  # noqa: E402
from quantizer.core.errors import SourceError  # noqa: E402
from quantizer.layers.attach import attach, make_plan  # noqa: E402
from quantizer.layers.linear import nvfp4_layers, unquantized  # noqa: E402
from quantizer.ptq import fold  # noqa: E402
from quantizer.ptq.awq import search  # noqa: E402
from quantizer.ptq.calibrate import observe  # noqa: E402
from quantizer.ptq.fold import fold_awq, fold_norm  # noqa: E402
from quantizer.recipes.recipe import Awq, Layers  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def trained(build: Any, **layers: Any) -> Any:
    """A tiny model whose norms have gains of their own, as trained ones do; with NVFP4 layers."""
    model = build()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, module in model.named_modules():
            if name.endswith("layernorm"):
                module.weight.add_(0.4 * torch.randn(module.weight.shape, generator=generator))
    attach(model, make_plan(model, Layers(**layers)))
    return model


@torch.no_grad()
def hidden(model: Any, quantized: bool = False) -> Any:
    if quantized:
        return hidden_states(model, folders.batch(3)).float()
    with unquantized(model):
        return hidden_states(model, folders.batch(3)).float()


def run(model: Any) -> Any:
    """What a fold runs to find readers and to compare outputs."""
    return lambda: hidden_states(model, fold.probe(folders.batch()))


def off(a: Any, b: Any) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("build", folders.BUILDS)
def test_modelopt_finds_the_same_alphas(build: Any) -> None:
    pytest.importorskip("modelopt", reason=INSTALL)
    from tests.quantizer import modelopt_cpu

    with modelopt_cpu.installed() as mtq:
        config = copy.deepcopy(mtq.NVFP4_AWQ_LITE_CFG)
        config["algorithm"] = {"method": "awq_lite", "debug": True}
        theirs = mtq.quantize(build(), config, lambda model: [model(tiny.tokens(seed)) for seed in range(4)])
    model = build()
    layers = attach(model, make_plan(model, Layers()))
    seen = observe(model, [folders.batch(seed) for seed in range(4)], layers)
    wanted = {name: round(theirs.get_submodule(name).awq_lite.best_alpha, 6) for name in layers}

    assert {name: search([layer.weight], seen[name]).alpha for name, layer in layers.items()} == wanted
    assert len(set(wanted.values())) > 3


@pytest.mark.parametrize("rounded_inputs", [False, True])
@pytest.mark.parametrize("build", folders.BUILDS)
def test_the_folded_model_is_quantized_better(build: Any, rounded_inputs: bool) -> None:
    model = trained(build)
    wanted = hidden(model)
    seen = observe(model, [folders.batch()], nvfp4_layers(model))
    from quantizer.ptq.calibrate import set_input_amax

    set_input_amax(model, seen)
    before = off(hidden(model, quantized=True), wanted)
    folded = fold_awq(model, seen, run(model), Awq(rounded_inputs=rounded_inputs))

    assert off(hidden(model, quantized=True), wanted) < before
    assert all(one.gain >= 1 for one in folded) and max(one.gain for one in folded) > 1.3


class Norm(nn.Module):
    """A norm of either kind, in BF16."""

    def __init__(self, gain: Any, offset: int) -> None:
        super().__init__()
        self.weight, self.offset = nn.Parameter((gain - offset).bfloat16()), offset

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True)) * (self.weight + self.offset)


def test_a_norm_of_another_kind_is_refused() -> None:
    with pytest.raises(SourceError, match="Norm: its gain is neither its weight nor 1 [+] its weight"):
        fold_norm(Norm(torch.full((16,), 3.0), 2), [], torch.ones(16), 0.05)


def test_a_reader_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    every = fold.find_readers
    monkeypatch.setattr(
        fold,
        "find_readers",
        lambda *args: {
            norm: tuple(n for n in names if not n.endswith(("in_proj_a", "in_proj_b")))
            for norm, names in every(*args).items()
        },
    )
    model = trained(tiny.qwen3_5)

    with pytest.raises(SourceError, match=r"awq: after the fold \S+in_proj_[ab] returns something else"):
        fold_awq(model, observe(model, [folders.batch()], nvfp4_layers(model)), run(model))
