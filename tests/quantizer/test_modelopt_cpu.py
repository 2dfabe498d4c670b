"""ModelOpt without CUDA: every way that is used runs, and what is trained is what is exported."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)
pytest.importorskip("modelopt", reason=INSTALL)

from quantizer.nvfp4 import blocks  # noqa: E402
from quantizer.ptq import modelopt_cpu  # noqa: E402
from quantizer.ptq.modelopt import share_modelopt_scales  # noqa: E402
from quantizer.verify.check import load_layer, verify  # noqa: E402
from quantizer.verify.folder import open_folder  # noqa: E402
from quantizer.verify.layout import readable_layers  # noqa: E402
from tests.quantizer import tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

EVERY = [
    "NVFP4_DEFAULT_CFG", "NVFP4_MLP_ONLY_CFG", "NVFP4_AWQ_LITE_CFG", "NVFP4_AWQ_CLIP_CFG", "W4A16_NVFP4_CFG",
    "NVFP4_SVDQUANT_DEFAULT_CFG", "NVFP4_FOUR_OVER_SIX_CFG", "NVFP4_W4A4_WEIGHT_LOCAL_HESSIAN_CFG",
    "NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG",
]  # fmt: skip
DEFAULT, FOUR_OVER_SIX, SWEEP = EVERY[0], EVERY[6], EVERY[8]


@pytest.fixture
def mtq() -> Iterator[Any]:
    with modelopt_cpu.installed() as module:
        yield module


def quantized(mtq: Any, name: str, model: Any) -> Any:
    """The model, calibrated under one of ModelOpt's configurations."""
    config = copy.deepcopy(getattr(mtq, name))
    return mtq.quantize(model, config, lambda model: model(tiny.tokens()))


def export(model: Any, folder: Path) -> None:
    from modelopt.torch.export import export_hf_checkpoint

    export_hf_checkpoint(model, export_dir=folder)


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model(tiny.tokens(1)).logits


@pytest.mark.parametrize("name", EVERY)
def test_a_configuration_calibrates_and_runs(mtq: Any, name: str) -> None:
    """Searches included; the result is near the model and not the model."""
    plain = logits(tiny.qwen3())
    rounded = logits(quantized(mtq, name, tiny.qwen3()))

    assert torch.isfinite(rounded).all()
    assert not torch.equal(plain, rounded)
    assert torch.nn.functional.cosine_similarity(plain.flatten(), rounded.flatten(), dim=0) > 0.9


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (tiny.qwen3, DEFAULT),
        (tiny.qwen3, FOUR_OVER_SIX),
        (tiny.qwen3, SWEEP),
        (tiny.qwen3_5, DEFAULT),
        (tiny.qwen3_5, FOUR_OVER_SIX),
    ],
)
def test_what_is_trained_is_what_is_served(mtq: Any, tmp_path: Path, build: Any, name: str) -> None:
    """The model with quantizers computes, bit for bit, what the exported bytes stand for."""
    model = quantized(mtq, name, build())
    share_modelopt_scales(model)
    trained, served = logits(model), copy.deepcopy(model)
    rounded = {
        n: layer.weight_quantizer(layer.weight)
        for n, layer in model.named_modules()
        if hasattr(layer, "weight_quantizer") and layer.weight_quantizer.is_enabled
    }
    export(model, tmp_path)
    folder = open_folder(tmp_path)
    names = {n.replace("language_model.", ""): n for n in readable_layers(folder)}
    assert rounded.keys() == names.keys()

    for name, weight in rounded.items():
        held = blocks.dequantize(load_layer(folder, names[name]), torch.bfloat16)
        assert torch.equal(weight, held), name
        layer = served.get_submodule(name)
        layer.weight.data.copy_(held)
        layer.weight_quantizer.disable()
        layer.input_quantizer.amax = folder.load(f"{names[name]}.input_scale") * 2688
    assert torch.equal(trained, logits(served))


@pytest.mark.parametrize("build", [tiny.qwen3, tiny.qwen3_5])
def test_an_export_is_sound(mtq: Any, tmp_path: Path, build: Any) -> None:
    """By the independent check, against its source."""
    build().save_pretrained(tmp_path / "source")
    export(quantized(mtq, DEFAULT, build()), tmp_path / "nvfp4")
    report = verify(tmp_path / "nvfp4", tmp_path / "source")

    assert report.sound, report.findings
    assert report.fit is not None
    assert report.fit.worst <= 0.5 + 1e-3
    assert report.fit.not_nearest == 0
    assert not report.changed


def test_untied_layers_are_trained_otherwise_than_served(mtq: Any, tmp_path: Path) -> None:
    """Why `tie_scales` is there: without it, some of q, k and v change in the export."""
    model = quantized(mtq, DEFAULT, tiny.qwen3())
    layers = [f"model.layers.0.self_attn.{kind}_proj" for kind in "qkv"]
    rounded = [model.get_submodule(n).weight_quantizer(model.get_submodule(n).weight) for n in layers]
    export(model, tmp_path)
    folder = open_folder(tmp_path)
    held = [blocks.dequantize(load_layer(folder, name), torch.bfloat16) for name in layers]

    assert not all(torch.equal(a, b) for a, b in zip(rounded, held, strict=True))


def test_ties_cover_weights_and_inputs(mtq: Any) -> None:
    """Inputs are the same for neighbours, but not what each of them was calibrated with."""
    model = quantized(mtq, DEFAULT, tiny.qwen3())
    attention = model.model.layers[1].self_attn
    attention.k_proj.input_quantizer.amax = torch.tensor(50.0)
    attention.v_proj.weight_quantizer.amax = torch.tensor(60.0)
    loose = attention.o_proj.weight_quantizer.amax.item()
    groups = share_modelopt_scales(model)

    assert len(groups) == 4
    assert groups[2] == tuple(f"model.layers.1.mlp.{kind}_proj" for kind in ("gate", "up"))
    for layer in (attention.q_proj, attention.k_proj, attention.v_proj):
        assert layer.input_quantizer.amax.item() == 50
        assert layer.weight_quantizer.amax.item() == 60
    assert attention.o_proj.weight_quantizer.amax.item() == loose


def test_layers_that_are_not_quantized_are_not_tied(mtq: Any) -> None:
    """Nor those without a calibrated input."""
    model = quantized(mtq, "W4A16_NVFP4_CFG", tiny.qwen3())
    mtq.disable_quantizer(model, "*mlp*")

    assert [len(group) for group in share_modelopt_scales(model)] == [3, 3]


@torch.no_grad()
def error_of(model: Any) -> float:
    """Summed squared error of the quantized weights."""
    return sum(
        float((layer.weight_quantizer(layer.weight).double() - layer.weight.double()).square().sum())
        for layer in model.modules()
        if hasattr(layer, "weight_quantizer") and layer.weight_quantizer.is_enabled
    )


def test_searched_scales_fit_better(mtq: Any) -> None:
    """Four over six beats the plain maximum, the sweep over all scales beats both."""
    plain, two, all_of_them = (
        error_of(quantized(mtq, n, tiny.qwen3())) for n in (DEFAULT, FOUR_OVER_SIX, SWEEP)
    )

    assert all_of_them < two < plain


def test_awq_finds_channels_worth_scaling(mtq: Any) -> None:
    """Its search runs the fake quantizer; a search that saw no error would leave all at one."""
    model = quantized(mtq, "NVFP4_AWQ_LITE_CFG", tiny.qwen3())
    scale = model.model.layers[0].mlp.down_proj.input_quantizer.pre_quant_scale

    assert scale.float().std() > 0.01


def test_gradients_are_those_of_the_rounded_model(mtq: Any) -> None:
    """Quantization-aware training: the straight-through gradient is the one at the rounded weights."""
    model = quantized(mtq, "W4A16_NVFP4_CFG", tiny.qwen3()).float()
    rounded = copy.deepcopy(model)
    for layer in rounded.modules():
        if hasattr(layer, "weight_quantizer") and layer.weight_quantizer.is_enabled:
            layer.weight.data = layer.weight_quantizer(layer.weight.data)
            layer.weight_quantizer.disable()
    for one in (model, rounded):
        one(tiny.tokens(), labels=tiny.tokens()).loss.backward()

    name = "model.layers.1.mlp.up_proj.weight"
    assert model.get_parameter(name).grad.abs().sum() > 0
    for key, weight in model.named_parameters():
        assert torch.equal(weight.grad, rounded.get_parameter(key).grad), key


def test_distillation_brings_the_student_back(mtq: Any) -> None:
    """Quantization-aware distillation: steps on the divergence from the teacher lower it."""
    teacher = torch.log_softmax(logits(tiny.qwen3()).float(), -1)
    student = quantized(mtq, DEFAULT, tiny.qwen3()).float()
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-5)
    losses = []
    for _ in range(16):
        guess = torch.log_softmax(student(tiny.tokens(1)).logits, -1)
        loss = torch.nn.functional.kl_div(guess, teacher, log_target=True, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert losses[-1] < 0.7 * losses[0]


def test_learned_scales_get_gradients(mtq: Any) -> None:
    """LSQ: the bare rounding lets the loss reach each block's amax."""
    config = copy.deepcopy(getattr(mtq, SWEEP))
    config["algorithm"] = {
        "method": "lsq",
        "learnable_amax": ["post"],
        "scale_algorithm": {"method": "mse", "fp8_scale_sweep": True},
    }
    model = mtq.quantize(tiny.qwen3(), config, lambda model: model(tiny.tokens())).float()
    model(tiny.tokens(), labels=tiny.tokens()).loss.backward()
    learned = [p.grad for n, p in model.named_parameters() if n.endswith("_amax_post")]

    assert len(learned) == 14
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in learned)


def test_without_it_modelopt_refuses_to_run(mtq: Any) -> None:
    """And again after it is removed; installing twice is installing once."""
    model = quantized(mtq, DEFAULT, tiny.qwen3())
    modelopt_cpu.install()
    modelopt_cpu.remove()

    with pytest.raises(AssertionError, match="must be a CUDA tensor"):
        logits(model)


class Recorder:
    """Stands for one of ModelOpt's functions."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        return "ModelOpt's"


def dynamic(x: Any, amax: Any, pass_through: bool) -> Any:
    function = modelopt_cpu.OURS["dynamic_block_quant"](Recorder())
    return function(x, 16, amax, None, E2M1, E4M3, None, "dynamic", pass_through)


def static(x: Any, amax: Any, pass_through: bool) -> Any:
    function = modelopt_cpu.OURS["static_blockwise_fp4_fake_quant"](Recorder())
    return function(x, amax.expand(len(x), 1), None, True, 448.0, None, pass_through)


@pytest.mark.parametrize("function", [dynamic, static])
@pytest.mark.parametrize(("pass_through", "gradient"), [(True, 1), (False, 0)])
def test_weights_beyond_the_amax_learn_if_modelopt_says_so(
    function: Any, pass_through: bool, gradient: int
) -> None:
    """`pass_through_bwd` of its configuration; they saturate in either case."""
    x = torch.full((2, 16), 3.0, requires_grad=True)
    rounded = function(x, torch.tensor(2.0), pass_through)
    rounded.sum().backward()

    assert set(rounded.flatten().tolist()) == {2.0}
    assert set(x.grad.flatten().tolist()) == {gradient}


@pytest.mark.parametrize("norm", [448.0, 256.0])
def test_static_scales_are_rounded_as_in_the_export(mtq: Any, norm: float) -> None:
    """Byte for byte, for amaxes of every size; 1 stands for the scale of a block of zeros."""
    amax = (
        torch.exp2(torch.randn(64, 40, generator=torch.Generator().manual_seed(1)) * 4 - 12)
        .bfloat16()
        .float()
    )
    amax[3, 5:9] = 0
    quantizer = SimpleNamespace(
        block_sizes={-1: 16, "four_over_six": norm == 256}, _amax=amax, global_amax=amax.amax()
    )
    theirs, second = mtq.qtensor.NVFP4QTensor.get_weights_scaling_factor_from_quantizer(
        quantizer, torch.empty(64, 640)
    )
    ours = blocks.static_scale(amax, amax.amax(), norm)

    assert torch.equal(theirs.view(torch.uint8), ours.view(torch.uint8))
    assert torch.equal(second, blocks.tensor_scale(amax.amax(), norm))


E2M1, E4M3, E8M0 = (2, 1), (4, 3), (8, 0)
ON_GPU, ON_CPU = SimpleNamespace(is_cuda=True), SimpleNamespace(is_cuda=False)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("dynamic_block_quant", (ON_GPU, 16, "amax", None, E2M1, E4M3, None, "dynamic", True)),
        ("dynamic_block_quant", (ON_CPU, 32, None, None, E2M1, E8M0, None, "dynamic", True)),
        ("dynamic_block_quant", (ON_CPU, 16, "amax", None, E4M3, E4M3, None, "dynamic", False)),
        ("static_blockwise_fp4_fake_quant", (ON_GPU, "amax", "global", True, 256.0, torch.bfloat16, True)),
        ("fp4_cast_ste", (ON_GPU, torch.float16)),
    ],
)
def test_what_is_not_ours_goes_to_modelopt(name: str, args: tuple[Any, ...]) -> None:
    """CUDA tensors and other formats, with every argument as it was."""
    own = Recorder()

    assert modelopt_cpu.OURS[name](own)(*args) == "ModelOpt's"
    assert own.calls == [args]


def test_a_block_of_another_size_is_refused(mtq: Any) -> None:
    """It could be trained, but nothing would serve it."""
    config = copy.deepcopy(mtq.NVFP4_DEFAULT_CFG)
    for rule in config["quant_cfg"]:
        if rule["quantizer_name"] == "*weight_quantizer" and "cfg" in rule:
            rule["cfg"]["block_sizes"][-1] = 32
    model = mtq.quantize(tiny.qwen3(), config, lambda model: model(tiny.tokens()))

    with pytest.raises(modelopt_cpu.ModelOptError, match="a block of 32 is not NVFP4"):
        logits(model)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seam is made of names inside ModelOpt, so only a version that was read is touched."""
    monkeypatch.setattr(modelopt_cpu, "version", lambda name: "0.48.0")

    with pytest.raises(modelopt_cpu.ModelOptError, match=r"0\.48\.0 is installed and 0\.47\.0 is known"):
        modelopt_cpu.install()


def test_a_missing_modelopt_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that brings it."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(modelopt_cpu, "version", missing)

    with pytest.raises(modelopt_cpu.ModelOptError, match="not installed: make quantizer"):
        modelopt_cpu.install()


def test_the_known_version_is_the_locked_one() -> None:
    """`make quantizer` installs what `install` accepts."""
    lock = (Path(__file__).parents[2] / "requirements" / "quantizer.in").read_text("utf-8")

    assert [f"nvidia-modelopt=={known}" for known in modelopt_cpu.KNOWN] == [
        line for line in lock.splitlines() if line.startswith("nvidia-modelopt")
    ]
