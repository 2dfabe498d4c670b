"""What is taken for a source, and what is refused before anything is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)
gguf = pytest.importorskip("gguf", reason=INSTALL)

from gates.artefact import artefact  # noqa: E402
from gates.artefact.artefact import MANIFEST  # noqa: E402
from quantizer.checkpoint.from_gguf import as_folder  # noqa: E402
from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from quantizer.core.errors import SourceError  # noqa: E402
from quantizer.data.render import open_renderer, read_template  # noqa: E402
from quantizer.gguf.write import write_gguf  # noqa: E402
from tests.quantizer import folders, ggufs, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def seal_and_change(folder: Path) -> None:
    artefact.seal(folder, name="x", format="hf-bf16", created=folders.NOW)
    rewrite(folder, vocab_size=95)


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def bad_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("{}")


REFUSED = [
    (lambda f: rewrite(f, model_type="t5"), "cannot be loaded (Unrecognized configuration class"),
    (lambda f: rewrite(f, model_type=None), "config.json names no model_type"),
    (lambda f: rewrite(f, auto_map={"AutoModel": "x.Y"}), "config.json has an auto_map; code of a model folder is never run"),
    (lambda f: rewrite(f, quantization_config={"quant_method": "gptq"}), "is quantized already; give the BF16 model"),
    (lambda f: (f / "config.json").unlink(), "there is no config.json; a Hugging Face model folder is needed"),
    (lambda f: (f / "config.json").write_text("{"), "error: config.json: cannot be read as JSON"),
    (truncate, "error: model.safetensors: "),
    (without_weights, "there is no safetensors file"),
    (seal_and_change, "is not what its artefact.json says: changed: config.json"),
    (bad_manifest, "artefact.json"),
]  # fmt: skip


@pytest.mark.parametrize("spoil, line", REFUSED)
def test_what_cannot_be_quantized_is_one_line(spoil: Any, line: str, tmp_path: Path) -> None:
    folders.bare(tiny.qwen3, tmp_path / "source")
    spoil(tmp_path / "source")

    with pytest.raises(SourceError) as error:
        load_model(open_source(tmp_path / "source"))
    assert line in str(error.value)
    assert str(tmp_path / "source") in str(error.value)
    assert "\n" not in str(error.value)


def test_a_gguf_file_is_a_source_for_as_long_as_the_work_lasts(tmp_path: Path) -> None:
    model = ggufs.other("llama")
    write_gguf(ggufs.save(model, tmp_path / "bf16"), tmp_path / "x.gguf", "f16", "x")
    begin = gguf.GGUFReader(tmp_path / "x.gguf").fields["tokenizer.ggml.bos_token_id"]
    assert begin.contents() == 1  # transformers 5.17 reads no Llama without, though none is put before a text

    with as_folder(tmp_path / "x.gguf", tmp_path / "out") as folder:
        held = load_model(open_source(folder)).state_dict()
        assert open_renderer(folder, read_template("hermes")).tokenizer.eos_token == "<|im_end|>"

    assert sorted(path.name for path in tmp_path.iterdir()) == ["bf16", "x.gguf"]
    assert all(torch.allclose(held[name], weight, atol=1e-6) for name, weight in model.named_parameters())
    with (
        pytest.raises(SourceError, match="cannot be read as GGUF"),
        as_folder(tmp_path / "bf16" / "no.gguf", tmp_path / "out"),
    ):
        pass
