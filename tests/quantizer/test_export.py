"""From memory to a folder: names, bytes, configuration; whole or not there."""

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)


from gates.artefact import artefact  # noqa: E402
from quantizer.checkpoint.source import open_source  # noqa: E402
from quantizer.core.errors import ExportError  # noqa: E402
from quantizer.layers.linear import nvfp4_layers  # noqa: E402
from quantizer.verify.check import verify  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
UP = "model.layers.1.mlp.up_proj"


def config(folder: Path, name: str = "config.json") -> Any:
    return json.loads((folder / name).read_text())


def test_a_vision_language_model_keeps_its_names_and_its_other_parts(tmp_path: Path) -> None:
    source = folders.wrapped(tmp_path / "source")
    out = folders.export(folders.attached(source), source, tmp_path / "out")
    before, after = folders.load(source.path), folders.load(out)
    report = verify(out, source.path)

    assert report.sound and not report.findings and not report.changed
    assert "model.language_model.layers.3.mlp.up_proj.weight_scale_2" in after
    kept = [name for name in before if after[name].dtype != torch.uint8]
    assert {"model.visual.blocks.0.attn.qkv.weight", "mtp.layers.0.mlp.up_proj.weight"} <= set(kept)
    assert all(torch.equal(before[name], after[name]) for name in kept)
    assert {torch.float32, torch.bfloat16} == {after[name].dtype for name in kept}
    ignored = config(out)["quantization_config"]["ignore"]
    assert {"model.visual*", "mtp*", "model.language_model.embed_tokens"} <= set(ignored)


def test_tokenizer_and_templates_come_along_and_code_does_not(tmp_path: Path) -> None:
    source = folders.save(tiny.qwen3, tmp_path / "source")
    for name in ("modeling.py", "pytorch_model.bin", ".cache.json", "README.md"):
        (source / name).write_text("x")
    opened = open_source(source)
    out = folders.export(folders.attached(opened), opened, tmp_path / "out")
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}

    assert {"tokenizer.json", "chat_template.jinja", "additional_chat_templates/xml.jinja"} <= found
    assert not found & {"modeling.py", "pytorch_model.bin", ".cache.json", "README.md"}
    assert artefact.verify(out) == []


# ------------------------------------------------------------------------------- whole or not there


def spoilt(model: Any, kind: str) -> None:
    layer = nvfp4_layers(model)[UP]
    if kind == "uncalibrated":
        layer.input_amax.zero_()
    elif kind == "not finite":
        layer.weight.data[2, 3] = float("nan")
    elif kind == "adapter":
        layer.adapter = torch.nn.Linear(2, 2)
    else:
        layer.input_amax.fill_(float("nan"))


@pytest.mark.parametrize(
    "kind, line",
    [
        ("uncalibrated", f"{UP}: its input has no amax; calibrate the model first"),
        ("nan amax", f"{UP}: its input has no amax; calibrate the model first"),
        ("not finite", f"{UP}.weight: the weight holds NaN or infinity, which NVFP4 cannot say"),
        ("adapter", f"has no {UP}.adapter.weight; adapters have to be merged before an export"),
    ],
)
def test_a_model_that_cannot_be_exported_leaves_nothing(kind: str, line: str, tmp_path: Path) -> None:
    source = folders.bare(tiny.qwen3, tmp_path / "source")
    model = folders.attached(source)
    spoilt(model, kind)

    with folders.nothing_left(tmp_path), pytest.raises(ExportError) as error:
        folders.export(model, source, tmp_path / "out")
    assert line in str(error.value)
