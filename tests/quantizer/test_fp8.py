"""FP8 for chosen layers, beside NVFP4: what is written is what was measured, as ModelOpt writes it and vLLM reads it."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: make quantizer"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from safetensors.torch import save_file  # noqa: E402

from gates.artefact import artefact  # noqa: E402
from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from quantizer.checkpoint.unpack import unpack  # noqa: E402
from quantizer.core.batch import Batch  # noqa: E402
from quantizer.core.errors import RecipeError, SourceError  # noqa: E402
from quantizer.gguf.make import open_model  # noqa: E402
from quantizer.layers.attach import attach, make_plan  # noqa: E402
from quantizer.nvfp4 import fp8  # noqa: E402
from quantizer.ptq import modelopt_cpu  # noqa: E402
from quantizer.ptq.calibrate import calibrate  # noqa: E402
from quantizer.ptq.parity import compare, outputs, served_model  # noqa: E402
from quantizer.ptq.quantize import run  # noqa: E402
from quantizer.recipes.recipe import Layers, load_recipe  # noqa: E402
from quantizer.reference.model import reference_model  # noqa: E402
from quantizer.surgery.plan import apply_plan  # noqa: E402
from quantizer.surgery.plan import make_plan as make_surgery_plan  # noqa: E402
from quantizer.surgery.server import parse_server  # noqa: E402
from quantizer.verify.check import load_fp8_layer, verify  # noqa: E402
from quantizer.verify.folder import open_folder  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
VLLM = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
ATTENTION = "*.self_attn.*"
O_PROJ = "model.layers.0.self_attn.o_proj"
CHOSEN = {"qwen3": f'["{ATTENTION}"]', "qwen3_5": '["*.linear_attn.*", "*.down_proj"]'}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources of both shapes, data, and each quantized by `mse` with layers in FP8."""
    folder = folders.with_data(tmp_path_factory.mktemp("made"), 3)
    for shape in CHOSEN:
        quantized("mse", folder, shape)
    return folder


def quantized(name: str, folder: Path, shape: str) -> Any:
    recipe = load_recipe(name, ["calibrate.conversations=3", f"layers.fp8={CHOSEN[shape]}"])
    out = folder / f"{shape}-{name}"
    return run(recipe, folder / shape, folder / "data.jsonl", out, now=folders.NOW, device="cpu")


def mixed(folder: Path, build: Any = tiny.qwen3, patterns: tuple[str, ...] = (ATTENTION,)) -> Path:
    """A tiny model of the smallest vocabulary with layers in FP8, calibrated and exported."""
    source = folders.bare(build, folder / "source")
    model = load_model(source)
    attach(model, make_plan(model, Layers(fp8=patterns)))
    calibrate(model, [batch()])
    return folders.export(model, source, folder / "mixed")


def batch() -> Batch:
    ids = tiny.tokens()
    return Batch(ids, ids, torch.ones_like(ids, dtype=torch.bool))


def tensors_of(folder: Path) -> dict[str, Any]:
    return dict(folders.load(folder))


# ------------------------------------------------------------------------------------------------ arithmetic


def test_every_number_goes_to_the_nearest_code() -> None:
    """Against a search among all codes."""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    codes = codes[codes.isfinite()]
    scale = torch.tensor(0.37)
    x = torch.cat([torch.randn(4000) * 40, torch.randn(500) * 1e-3, torch.tensor([0.0, 200.0, -200.0])])
    least = (x[:, None] - codes * scale).abs().amin(dim=1)
    assert torch.allclose((fp8.fake(x, scale) - x).abs(), least, atol=1e-7)


def test_a_matrix_of_zeros_and_one_that_is_not_finite() -> None:
    nothing = torch.zeros(2, 16)
    assert torch.equal(fp8.dequantize(fp8.quantize(nothing, fp8.scale_of(nothing.abs().amax()))), nothing)
    with pytest.raises(ValueError, match="NaN or infinity"):
        fp8.quantize(torch.full((2, 16), torch.nan), torch.tensor(1.0))


# ---------------------------------------------------------------------------------------------- whole recipes


@pytest.mark.parametrize("shape", CHOSEN)
def test_what_is_calibrated_is_what_is_served(made: Path, shape: str) -> None:
    """Equal logits, to the bit; a sound folder, whose layers are as near to the source as each format allows."""
    out = made / f"{shape}-mse"
    found = artefact.load(out).provenance.recipe["outcome"]["check"]
    report = verify(out, made / shape)

    assert found["parity"]["equal"] == found["parity"]["tokens"] > 500
    assert found["fp8_layers"] == {"qwen3": 8, "qwen3_5": 13}[shape]
    assert report.sound and report.algorithm == "MIXED_PRECISION" and not report.findings
    for layer in report.layers:
        assert layer.fit is not None and layer.fit.not_nearest == 0
        assert (layer.fit.sqnr_db > 30) == (layer.format == "FP8"), layer.name


def test_scales_that_awq_folds_are_folded_beside_fp8(made: Path) -> None:
    """up_proj's rows carry the scales of a down_proj that is in NVFP4, and the reverse does not happen."""
    check = quantized("awq_lite", made, "qwen3").provenance.recipe["outcome"]["check"]
    assert check["parity"]["equal"] == check["parity"]["tokens"]


@pytest.mark.parametrize("weight_only", [False, True])
def test_the_reference_engine_computes_it(made: Path, weight_only: bool) -> None:
    """And on a GPU without FP4 the inputs of layers in FP8 are rounded all the same."""
    ids = torch.arange(5, 29)[None]
    asked = Batch(ids, ids, torch.ones_like(ids, dtype=torch.bool))
    folder = made / "qwen3-mse"
    wanted = outputs(served_model(folder, weight_only=weight_only), [asked])[0]
    with torch.inference_mode():
        model: Any = reference_model(folder, weight_only=weight_only)
        assert torch.equal(model.model(input_ids=ids, use_cache=False).last_hidden_state, wanted)
    attention = model.get_submodule(O_PROJ)
    assert attention.eight and attention.input_scale is not None


def test_unpacked_it_has_the_same_weights(made: Path, tmp_path: Path) -> None:
    folder = open_folder(made / "qwen3-mse")
    unpack(made / "qwen3-mse", tmp_path / "bf16", now=folders.NOW)
    held = tensors_of(tmp_path / "bf16")
    assert torch.equal(
        held[f"{O_PROJ}.weight"], fp8.dequantize(load_fp8_layer(folder, O_PROJ), torch.bfloat16)
    )
    assert f"{O_PROJ}.weight_scale" not in held and f"{O_PROJ}.input_scale" not in held
    assert load_model(open_source(tmp_path / "bf16"))


def test_gguf_has_no_fp8(made: Path) -> None:
    with pytest.raises(SourceError, match="is in FP8, which GGUF has not; give the BF16 model"):
        open_model(made / "qwen3-mse")


# --------------------------------------------------------------------------------------------- what is chosen


def test_fp8_takes_layers_from_nvfp4_and_from_what_is_kept() -> None:
    plan = make_plan(tiny.qwen3_5(), Layers(deltanet=False, fp8=("*.linear_attn.*", "*.down_proj")))
    assert {name.rpartition(".")[2] for name in plan.fp8} == {
        "in_proj_qkv",
        "in_proj_z",
        "out_proj",
        "down_proj",
    }
    assert {name.rpartition(".")[2] for name in plan.layers} == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
    }  # fmt: skip
    assert not {*plan.fp8, *plan.layers} & {*plan.kept}


@pytest.mark.parametrize(
    "build, patterns, line",
    [
        (tiny.qwen3, ("*.q_proj",), "layers: a server joins .*gate|layers: a server joins .*k_proj"),
        (tiny.qwen3, ("*.attention.*",), "layers.fp8: '\\*.attention.\\*' matches no layer"),
        (tiny.qwen3, ("lm_head",), "layers.fp8: 'lm_head' matches no layer"),
        (tiny.qwen3, ("*",), "nothing is left for NVFP4"),
        (tiny.qwen3_moe, ("*.experts.*",), "is an expert's; experts become NVFP4 or stay in BF16"),
    ],
)
def test_a_choice_that_cannot_be_is_one_line(build: Any, patterns: tuple[str, ...], line: str) -> None:
    if build is tiny.qwen3_moe:
        from quantizer.layers.experts import separate_experts

        model = build()
        separate_experts(model)
    else:
        model = build()
    with pytest.raises(RecipeError, match=line):
        make_plan(model, Layers(fp8=patterns))


@pytest.mark.parametrize("name", ["qat", "qad", "auto_mixed", "modelopt_default", "autoround", "svdquant"])
def test_recipes_that_cannot_have_it_say_so(name: str) -> None:
    with pytest.raises(RecipeError, match="layers.fp8: cannot be joined with"):
        load_recipe(name, ['layers.fp8=["*.self_attn.*"]'])


# --------------------------------------------------------------------------------------------- ModelOpt, vLLM


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")  # ModelOpt's, for FP8
def test_it_is_written_as_modelopt_writes_it(tmp_path: Path) -> None:
    """Names, types, shapes, scales and both descriptions. ModelOpt rounds the quotient to BF16 before it rounds to E4M3,
    which moves some ties; ours is the nearest."""
    pytest.importorskip("modelopt", reason=INSTALL)
    ours = mixed(tmp_path)
    theirs = tmp_path / "theirs"
    with modelopt_cpu.installed() as mtq:
        from modelopt.torch.export import export_hf_checkpoint

        config = copy.deepcopy(mtq.NVFP4_DEFAULT_CFG)
        eight = {"num_bits": (4, 3), "axis": None}
        for part in ("weight", "input"):
            config["quant_cfg"].append({"quantizer_name": f"*self_attn*{part}_quantizer", "cfg": eight})
        model = mtq.quantize(tiny.qwen3(), config, lambda model: model(tiny.tokens()))
        export_hf_checkpoint(model, export_dir=theirs)

    for file, key in (("hf_quant_config.json", None), ("config.json", "quantization_config")):
        here, there = (json.loads((folder / file).read_text()) for folder in (ours, theirs))
        assert (here[key] if key else here) == (there[key] if key else there)
    one, two = tensors_of(ours), tensors_of(theirs)
    assert {k: (v.dtype, v.shape) for k, v in one.items()} == {k: (v.dtype, v.shape) for k, v in two.items()}
    for part in ("weight_scale", "input_scale"):
        assert torch.equal(one[f"{O_PROJ}.{part}"], two[f"{O_PROJ}.{part}"])
    weight, scale = tiny.qwen3().get_parameter(f"{O_PROJ}.weight"), two[f"{O_PROJ}.weight_scale"]
    assert torch.equal(two[f"{O_PROJ}.weight"].float(), (weight / scale).to(torch.float8_e4m3fn).float())
    here, there = (fp8.dequantize(load_fp8_layer(open_folder(one), O_PROJ)) for one in (ours, theirs))
    assert 0 < (here != there).float().mean() < 0.05
    assert ((here - weight).abs() <= (there - weight).abs() + 1e-9).all()
    scales = [one[f"model.layers.0.self_attn.{kind}_proj.weight_scale"] for kind in "qkv"]
    assert len(set(map(float, scales))) == 1, "a server takes the largest of a fused group"


READ = """
import json, sys
from vllm.model_executor.layers.quantization.modelopt import ModelOptMixedPrecisionConfig as Mixed
found = {}
for file in ("hf_quant_config.json", "config.json"):
    held = json.load(open(f"{sys.argv[1]}/{file}"))
    config = Mixed.from_config(held.get("quantization_config", held))
    config.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
    names = [f"model.layers.0.{name}" for name in ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj")]
    found[file] = [config._resolve_quant_algo(name) for name in (*names, "lm_head")]
method = Mixed.override_quantization_method(json.load(open(f"{sys.argv[1]}/config.json"))["quantization_config"], None)
print(json.dumps([found, method]))
"""


@pytest.mark.slow  # vLLM's import alone takes seconds
@pytest.mark.skipif(not VLLM.exists(), reason="no vLLM here: make test-vllm installs it")
def test_vllm_reads_both_descriptions(tmp_path: Path) -> None:
    folder = mixed(tmp_path)
    command = [str(VLLM), "-c", READ, str(folder)]
    environment = {"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found, method = json.loads(done.stdout.splitlines()[-1])
    assert method == "modelopt_mixed"
    wanted = ["FP8", "FP8", "NVFP4", None]
    assert found == {"hf_quant_config.json": wanted, "config.json": wanted}


# ---------------------------------------------------------------------------------------------------- surgery


def operated(folder: Path, server: str, out: Path) -> dict[str, str]:
    plan = make_surgery_plan(folder, parse_server(server))
    apply_plan(plan, out, folders.NOW)
    return {step.operation: step.state for step in plan.steps}


def test_for_a_server_that_reads_mixtures_only_names_change(made: Path, tmp_path: Path) -> None:
    """Of Qwen3.5 for vLLM 0.24, in every place that names layers."""
    out = tmp_path / "wrapped"
    assert operated(made / "qwen3_5-mse", "vllm-0.24", out)["quantization"] == "fine"
    section = json.loads((out / "config.json").read_text())["quantization_config"]
    targets = [name for group in section["config_groups"].values() for name in group["targets"]]
    assert sorted(targets) == sorted(section["quantized_layers"])
    assert all(name.startswith("model.language_model.") for name in targets)
    assert verify(out, made / "qwen3_5").sound


def test_for_an_older_server_layers_in_fp8_become_bf16(made: Path, tmp_path: Path) -> None:
    """What it computes with its weights is the same to the bit; inputs of those layers are rounded no more."""
    operated(made / "qwen3-mse", "vllm-0.15", tmp_path / "old")
    report = verify(tmp_path / "old")
    assert report.sound and report.algorithm == "NVFP4" and O_PROJ in report.excluded
    held = open_folder(made / "qwen3-mse")
    wanted = fp8.dequantize(load_fp8_layer(held, O_PROJ), torch.bfloat16)
    assert torch.equal(tensors_of(tmp_path / "old")[f"{O_PROJ}.weight"], wanted)


# --------------------------------------------------------------------------------------------------- the check


def nan_weight(tensors: dict[str, Any]) -> None:
    codes = tensors[f"{O_PROJ}.weight"].view(torch.uint8).clone()
    codes[0, 0] = 0x7F
    tensors[f"{O_PROJ}.weight"] = codes.view(torch.float8_e4m3fn)


def rescale(part: str, factor: float) -> Any:
    def change(tensors: dict[str, Any]) -> None:
        tensors[part] = tensors[part] * factor

    return change


@pytest.mark.parametrize(
    "change, code",
    [
        (lambda tensors: tensors.pop(f"{O_PROJ}.weight_scale"), "missing_scale"),
        (lambda tensors: tensors.pop(f"{O_PROJ}.input_scale"), "missing_scale"),
        (lambda tensors: tensors.pop(f"{O_PROJ}.weight"), "orphan_scale"),
        (nan_weight, "not_finite"),
        (rescale(f"{O_PROJ}.weight_scale", -1.0), "scale_bound"),
        (rescale(f"{O_PROJ}.input_scale", float("inf")), "not_finite"),
        (rescale(f"{O_PROJ}.weight_scale", 1.05), "not_nearest"),
        (rescale(f"{O_PROJ}.weight_scale", 3.0), "far_from_source"),
        (rescale("model.layers.0.self_attn.q_proj.weight_scale", 0.5), "fused_requantized"),
        (lambda t: t.update({f"{O_PROJ}.weight": torch.zeros(64, 64, dtype=torch.uint8)}), "dtype"),
        (lambda t: t.update({f"{O_PROJ}.weight_scale": torch.ones(64, 1)}), "shape"),
        (lambda t: t.update({f"{O_PROJ}.weight": t[f"{O_PROJ}.weight"] .float().mul(0).to(torch.float8_e4m3fn)}),
         "all_zero"),
    ],
)  # fmt: skip
def test_damage_is_found(tmp_path: Path, change: Any, code: str) -> None:
    folder = mixed(tmp_path)
    tensors = tensors_of(folder)
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert code in {finding.code for finding in verify(folder, tmp_path / "source").findings}


@pytest.mark.parametrize("named, code", [(None, "excluded_but_quantized"), ("NVFP4", "not_excluded")])
def test_a_layer_in_fp8_that_is_called_otherwise_is_found(
    tmp_path: Path, named: str | None, code: str
) -> None:
    folder = mixed(tmp_path)
    for file, key in (("hf_quant_config.json", "quantization"), ("config.json", "quantization_config")):
        document = json.loads((folder / file).read_text())
        layers = document[key]["quantized_layers"]
        layers.pop(O_PROJ)
        if named:
            layers[O_PROJ] = {"quant_algo": named}
        (folder / file).write_text(json.dumps(document))
    assert code in {finding.code for finding in verify(folder).findings if finding.severity == "error"}


def test_a_fused_group_of_two_formats_is_found(tmp_path: Path) -> None:
    folder, other = mixed(tmp_path), mixed(tmp_path / "other", patterns=("*.o_proj",))
    tensors, theirs = tensors_of(folder), tensors_of(other)
    name = "model.layers.0.self_attn.k_proj"
    tensors = {key: value for key, value in tensors.items() if not key.startswith(name)}
    tensors |= {key: value for key, value in theirs.items() if key.startswith(name)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    found = {f.code: f.detail for f in verify(folder).findings}
    assert found["fused_mixed"] == "q_proj FP8, k_proj NVFP4, v_proj FP8"


def test_a_wrong_scale_does_not_pass_the_proof(tmp_path: Path) -> None:
    source = folders.bare(tiny.qwen3, tmp_path / "source")
    model = load_model(source)
    attach(model, make_plan(model, Layers(fp8=(ATTENTION,))))
    calibrate(model, [batch()])
    folder = folders.export(model, source, tmp_path / "mixed")
    assert compare(model, served_model(folder), [batch()]).holds
    tensors = tensors_of(folder)
    tensors[f"{O_PROJ}.input_scale"] *= 0.5
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert not compare(model, served_model(folder), [batch()]).holds
