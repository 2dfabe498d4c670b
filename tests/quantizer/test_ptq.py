"""Quantization without training, whole: what is calibrated is what is served, for every recipe on both shapes."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)


from quantizer.core.errors import ExportError, RecipeError  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.ptq import quantize  # noqa: E402
from quantizer.ptq.quantize import run  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.verify.check import verify  # noqa: E402
from tests.quantizer import folders  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
SHAPES = ("qwen3", "qwen3_5")
SMALL = ["calibrate.conversations=3"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conversations.write(tmp_path_factory.mktemp("data") / "rows.jsonl", 3)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    return {build.__name__: folders.save(build, folder / build.__name__) for build in folders.BUILDS}


def quantized(name: str, source: Path, data: Path, out: Path, *changes: str) -> Any:
    recipe = load_recipe(name, [*SMALL, *changes])
    return run(recipe, source, data, out, now=folders.NOW, device="cpu")


def test_a_mix_keeps_what_is_sensitive_and_stays_plain_nvfp4(
    sources: dict[str, Path], data: Path, tmp_path: Path
) -> None:
    made = quantized("auto_mixed", sources["qwen3_5"], data, tmp_path / "out", "auto.samples=2")
    auto = made.provenance.recipe["outcome"]["auto"]
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    kept = [name for group in auto["kept"] for name in group]

    assert 4.5 < auto["chosen"]["bits"] <= 6.0
    assert kept and set(kept) <= set(config["ignore"])
    assert config["quant_algo"] == "NVFP4"
    assert auto["scored_tokens"] > 5
    assert verify(tmp_path / "out").sound
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["default", "mse", "four_over_six"])
def test_modelopt_exports_the_same_folder(
    name: str, shape: str, sources: dict[str, Path], data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("modelopt", reason=INSTALL)
    from quantizer.checkpoint.source import load_model, open_source
    from quantizer.core.decoder import hidden_states
    from quantizer.layers.attach import make_plan
    from tests.quantizer import modelopt_cpu

    recipe = load_recipe(name, SMALL)
    quantized(name, sources[shape], data, tmp_path / "ours")
    source = open_source(sources[shape])
    job = quantize.QuantizationJob(recipe, source, quantize._data(recipe, source, data), "cpu")
    model = load_model(job.source)
    with modelopt_cpu.installed() as mtq:
        wanted = modelopt_cpu.config(mtq, recipe, make_plan(model, recipe.layers))
        from modelopt.torch.export import export_hf_checkpoint

        mtq.quantize(model, wanted, lambda m: [hidden_states(m, batch) for batch in job.batches()])
        export_hf_checkpoint(model, export_dir=tmp_path / "theirs")
    ours = folders.load(tmp_path / "ours")
    theirs = {n.replace("language_model.", ""): t for n, t in folders.load(tmp_path / "theirs").items()}

    assert ours.keys() == theirs.keys()
    for key, tensor in ours.items():
        assert tensor.dtype == theirs[key].dtype, key
        assert torch.equal(tensor.float(), theirs[key].float()), key
    texts = [
        (tmp_path / who / "hf_quant_config.json").read_text().replace("language_model.", "")
        for who in ("ours", "theirs")
    ]
    assert json.loads(texts[0]) == json.loads(texts[1])


# -------------------------------------------------------------------------------------------- parity


def test_a_result_without_parity_is_not_kept(
    sources: dict[str, Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quantizer.checkpoint import export

    plan = export._quantized

    def wrong(*args: Any) -> Any:
        *parts, inputs = plan(*args)
        right = inputs.make
        return [*parts, replace(inputs, make=lambda: [2.5 * one for one in right()])]

    monkeypatch.setattr(export, "_quantized", wrong)
    with folders.nothing_left(tmp_path), pytest.raises(ExportError) as error:
        quantized("default", sources["qwen3"], data, tmp_path / "out")
    assert "the exported folder computes something else than the model: logits up to" in str(error.value)


def test_an_unsound_result_is_not_kept(
    sources: dict[str, Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantizer.ptq.calibrate.share_scales", lambda model: [])
    monkeypatch.setattr("quantizer.layers.attach.share_scales", lambda model: [])

    with (
        folders.nothing_left(tmp_path),
        pytest.raises(ExportError, match="is not sound, so it is not kept: error"),
    ):
        quantized("default", sources["qwen3"], data, tmp_path / "out")


# ------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    "name, kind, line",
    [
        ("qat", RecipeError, "qat trains: run it with manners quantize qat"),
        ("default", RecipeError, "layers.exclude: '*nowhere' matches no layer"),
        ("auto_mixed", RecipeError, "auto.effective_bits: 16 keeps every layer in BF16"),
    ],
)
def test_a_recipe_that_ends_in_no_folder_leaves_nothing(
    name: str, kind: Any, line: str, sources: dict[str, Path], data: Path, tmp_path: Path
) -> None:
    changes = {
        "default": ["layers.exclude=['*nowhere']"],
        "auto_mixed": ["auto.effective_bits=16", "auto.samples=1"],
    }

    with pytest.raises(kind, match=re.escape(line)):
        quantized(name, sources["qwen3"], data, tmp_path / "out", *changes.get(name, []))
    assert not (tmp_path / "out").exists()
