"""An NVFP4 folder as BF16: the numbers of the checker, and a descendant of what it was made of."""

import json
from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from app.__main__ import main  # noqa: E402
from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from quantizer.layers.linear import nvfp4_layers  # noqa: E402
from tests.quantizer import folders  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize("build", folders.BUILDS)
def test_the_bf16_folder_holds_what_the_packed_one_stands_for(build: object, tmp_path: Path) -> None:
    source = folders.bare(build, tmp_path / "source")
    quantized = folders.attached(source)
    packed = folders.export(quantized, source, tmp_path / "nvfp4")
    assert main(["quantize", "export", str(packed), "--out", str(tmp_path / "bf16")]) == 0
    model = load_model(open_source(tmp_path / "bf16"))
    layers = nvfp4_layers(quantized)

    for name, weight in model.named_parameters():
        layer = layers.get(name.removesuffix(".weight"))
        wanted = layer.fake_weight() if layer else quantized.get_parameter(name)
        assert torch.equal(weight, wanted), name
    assert "quantization_config" not in json.loads((tmp_path / "bf16" / "config.json").read_text())
    assert not (tmp_path / "bf16" / "hf_quant_config.json").exists()
