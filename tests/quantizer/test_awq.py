"""AWQ by one Gram matrix, and folded so that the model computes what it did."""

import copy
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from quantizer.core.decoder import hidden_states  # noqa: E402
from quantizer.core.errors import SourceError  # noqa: E402
from quantizer.layers.attach import attach, make_plan  # noqa: E402
from quantizer.layers.linear import nvfp4_layers, unquantized  # noqa: E402
from quantizer.nvfp4 import blocks  # noqa: E402
from quantizer.ptq import fold  # noqa: E402
from quantizer.ptq.awq import search  # noqa: E402
from quantizer.ptq.calibrate import InputStats, observe  # noqa: E402
from quantizer.ptq.fold import find_readers, fold_awq, fold_norm  # noqa: E402
from quantizer.recipes.recipe import Awq, Layers  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
DELTANET = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")


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


def test_the_error_of_an_alpha_is_the_one_at_the_output() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 64, generator=generator) * torch.exp2(2 * torch.randn(64, generator=generator))
    weight = torch.randn(32, 64, generator=generator).bfloat16()
    seen = InputStats(torch.zeros(64), torch.zeros(64), torch.zeros(64, 64))
    seen.add(x)
    choice = search([weight], seen)
    scale, inverse = choice.scale.bfloat16(), (1 / choice.scale).bfloat16()
    rounded = blocks.dequantize(blocks.quantize(weight * scale), torch.bfloat16).float() * inverse.float()
    wanted = (F.linear(x, rounded) - F.linear(x, weight.float())).square().sum().item()

    assert choice.losses[choice.alpha] == pytest.approx(wanted, rel=1e-3)
    assert choice.losses[choice.alpha] == min(choice.losses.values()) < 0.8 * choice.losses[0]


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


@pytest.mark.parametrize(
    "build, norm, readers",
    [
        (tiny.qwen3, "model.layers.0.input_layernorm", {"q_proj", "k_proj", "v_proj"}),
        (tiny.qwen3_5, "model.layers.0.input_layernorm", set(DELTANET)),
        (tiny.qwen3_5, "model.layers.3.input_layernorm", {"q_proj", "k_proj", "v_proj"}),
        (tiny.qwen3_5, "model.layers.3.post_attention_layernorm", {"gate_proj", "up_proj"}),
    ],
)
def test_every_reader_of_a_norm_is_found_quantized_or_not(build: Any, norm: str, readers: set[str]) -> None:
    model = build()
    found = find_readers(model, run(model))

    assert {name.rpartition(".")[2] for name in found[norm]} == readers
    assert all(name.rpartition(".")[2] != "o_proj" for names in found.values() for name in names)


@pytest.mark.parametrize(
    "build, layers",
    [(build, layers) for build in folders.BUILDS for layers in ({}, {"include": ("*.mlp.*",)}, {"exclude": ("*.mlp.*",)})],
)  # fmt: skip
def test_the_folded_model_computes_what_it_did(build: Any, layers: dict[str, Any]) -> None:
    model = trained(build, **layers)
    before = hidden(model)
    fold_awq(model, observe(model, [folders.batch()], nvfp4_layers(model)), run(model))

    assert 0 < off(hidden(model), before) < 0.02


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


@pytest.mark.parametrize("offset", [0, 1])
def test_a_norms_gain_is_measured_and_divided(offset: int) -> None:
    generator = torch.Generator().manual_seed(1)
    gain, scale = (
        torch.rand(64, generator=generator) + 0.5,
        torch.exp2(torch.randn(64, generator=generator) / 2),
    )
    norm, reader = Norm(gain, offset), nn.Linear(64, 8, bias=False)
    before, weight = norm.weight.float() + offset, reader.weight.clone()
    factor = fold_norm(norm, [reader], scale, least_gain=0.05)
    after = norm.weight.float() + offset

    torch.testing.assert_close(after, before / scale, rtol=0.02, atol=0.005)
    torch.testing.assert_close(after * factor, before)
    torch.testing.assert_close(reader.weight, weight * factor)


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
