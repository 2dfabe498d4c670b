"""Path B: NVFP4 in GGUF bit by bit, Qwen3.5's tensors in their places, llama.cpp's programs, and bad input."""

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
gguf = pytest.importorskip("gguf", reason=INSTALL)
pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")

from safetensors.torch import load_file  # noqa: E402

from gates.artefact import artefact  # noqa: E402
from quantizer.cli import gguf as gguf_command  # noqa: E402
from quantizer.cli import main  # noqa: E402
from quantizer.core.errors import SourceError  # noqa: E402
from quantizer.gguf.arch import architecture  # noqa: E402
from quantizer.gguf.make import make_gguf  # noqa: E402
from quantizer.gguf.nvfp4 import pack  # noqa: E402
from quantizer.gguf.write import write_gguf  # noqa: E402
from quantizer.nvfp4 import blocks, grid  # noqa: E402
from quantizer.nvfp4.blocks import Nvfp4Tensor  # noqa: E402
from quantizer.plan.model import read_model  # noqa: E402
from quantizer.plan.resources import gguf_needed  # noqa: E402
from quantizer.verify.check import load_layer  # noqa: E402
from quantizer.verify.folder import open_folder  # noqa: E402
from tests.quantizer import ggufs  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
Type = gguf.GGMLQuantizationType
NOW = datetime(2026, 11, 21, tzinfo=UTC)
MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ggufs.save(ggufs.qwen3(), tmp_path_factory.mktemp("dense") / "bf16")


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ggufs.save(ggufs.qwen3_5(), tmp_path_factory.mktemp("hybrid") / "bf16")


def nvfp4(source: Path) -> Path:
    folder = source.with_name("nvfp4")
    return folder if folder.exists() else ggufs.quantized(source, folder)


def tensors(path: Path) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def numbers(tensor: Any) -> Any:
    return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())


# --------------------------------------------------------------------------------------------- the bytes


def every_pair() -> Nvfp4Tensor:
    """Each of E4M3's 126 positive scales with each of the 16 codes; and scales of 128 to fill the row."""
    scales = torch.tensor([*range(1, 0x7F), 0x70, 0x70], dtype=torch.uint8)
    codes = torch.arange(16, dtype=torch.uint8).repeat(len(scales)).reshape(2, -1)
    return Nvfp4Tensor(grid.pack(codes), scales.view(torch.float8_e4m3fn).reshape(2, -1), torch.tensor(1.0))


@pytest.mark.parametrize("scale", [0x7F, 0x80, 0xFF, 0xB8])
def test_a_scale_that_the_type_cannot_say_is_refused(scale: int) -> None:
    tensor = every_pair()
    tensor.scale.view(torch.uint8)[0, 0] = scale
    with pytest.raises(SourceError, match="negative or NaN"):
        pack("x", tensor)


# ------------------------------------------------------------------------------------------- whole files


@pytest.mark.parametrize("kind", ["f16", "q4_k_m"])
def test_the_shipped_files_are_written_again_byte_by_byte(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "again.gguf"
    write_gguf(MODELS / "annie-nano-hf", target, kind, "annie-nano")
    assert (MODELS / f"annie-nano-{kind}" / f"annie-nano-{kind}.gguf").read_bytes() == target.read_bytes()


def test_an_nvfp4_folder_becomes_a_file_without_loss(dense: Path, tmp_path: Path) -> None:
    folder = nvfp4(dense)
    target = tmp_path / "x.gguf"
    write_gguf(folder, target, "nvfp4", "x")
    held, found, source = open_folder(folder), tensors(target), load_file(folder / "model.safetensors")

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, 2)
    layers = [name.removesuffix(".weight_scale_2") for name in source if name.endswith(".weight_scale_2")]
    assert len(layers) == 14
    for layer in layers:
        name, tensor = names.get_name(layer), load_layer(held, layer)
        assert found[f"{name}.weight"].tensor_type == Type.NVFP4
        bare = blocks.dequantize(tensor._replace(tensor_scale=torch.tensor(1.0)))
        assert torch.equal(numbers(found[f"{name}.weight"]), bare)
        assert float(found[f"{name}.scale"].data[0]) == float(tensor.tensor_scale)
        assert float(found[f"{name}.input_scale"].data[0]) == float(source[f"{layer}.input_scale"])
    for name in ("model.embed_tokens", "lm_head", "model.norm"):
        kept = numbers(found[f"{names.get_name(name)}.weight"])
        assert torch.equal(kept.reshape(-1), source[f"{name}.weight"].float().reshape(-1))
    assert {t.tensor_type for t in found.values()} == {Type.NVFP4, Type.BF16, Type.F32}


def test_qwen3_5_goes_through_every_kind(hybrid: Path, tmp_path: Path) -> None:
    got = {
        kind: write_gguf(hybrid, tmp_path / f"{kind}.gguf", kind, "x")
        for kind in gguf_command.TYPES
        if kind != "nvfp4"
    }
    got["nvfp4"] = write_gguf(nvfp4(hybrid), tmp_path / "nvfp4.gguf", "nvfp4", "x")
    picked = (
        "blk.0.attn_qkv.weight",
        "blk.0.ssm_out.weight",
        "blk.0.ssm_conv1d.weight",
        "blk.0.ssm_alpha.weight",
    )
    assert {kind: [types[name].name for name in picked] for kind, types in got.items()} == {
        "f16": ["F16", "F16", "F32", "F16"],
        "q8_0": ["Q8_0", "Q8_0", "F32", "Q8_0"],
        "q6_k": ["Q8_0", "Q8_0", "F32", "Q8_0"],
        "q5_k_m": ["Q8_0", "Q5_1", "F32", "Q5_1"],
        "q4_k_m": ["Q5_1", "Q5_0", "F32", "Q5_0"],
        "q2_k": ["IQ4_NL", "IQ4_NL", "F32", "IQ4_NL"],
        "nvfp4": ["NVFP4", "NVFP4", "F32", "BF16"],
    }
    fields = gguf.GGUFReader(tmp_path / "f16.gguf").fields
    value = {key: field.contents() for key, field in fields.items()}
    assert (value["general.architecture"], value["tokenizer.ggml.pre"]) == ("qwen35", "qwen35")
    assert value["qwen35.rope.dimension_sections"] == [3, 3, 2, 0]
    assert value["tokenizer.ggml.tokens"][600:] == [f"[PAD{i}]" for i in range(600, ggufs.VOCABULARY)]


# ------------------------------------------------------------------------------------- command and bad input


def command(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    gguf_command.add(parser.add_subparsers(dest="verb"))
    args = parser.parse_args(["gguf", *map(str, arguments)])
    return main.run(argparse.Namespace(command="quantize", read_host=lambda: None, **vars(args)))


def test_the_command_writes_a_sealed_folder(
    dense: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(nvfp4(dense), "--out", tmp_path / "out", "--type", "nvfp4") == 0
    held = artefact.load(tmp_path / "out")
    assert not artefact.verify(tmp_path / "out")
    assert held.format == "gguf-nvfp4" and set(held.provenance.parents) == {"source"}
    assert held.provenance.recipe["tensors"] == {"BF16": 2, "F32": 37, "NVFP4": 14}
    assert "14 NVFP4" in capsys.readouterr().out


def copied(source: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in source.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def config(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def no_bpe(folder: Path) -> None:
    document = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(document | {"pre_tokenizer": None}))


BAD: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "an unknown architecture": (config(model_type="mamba"), "f16", "'mamba' are not written here; use llama.cpp's"),
    "code of its own": (config(auto_map={"AutoModel": "x"}), "f16", "auto_map"),
    "a stretched rope": (config(rope_parameters={"rope_type": "yarn", "rope_theta": 1.0}), "f16", "'yarn'"),
    "a foreign tokenizer": (no_bpe, "f16", "not the byte-level BPE of Qwen, Llama 3, SmolLM or GPT-2"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "f16", "tokenizer.json: cannot be read"),
    "NVFP4 of a BF16 folder": (lambda f: None, "nvfp4", "holds nothing in NVFP4"),
    "another quantization": (config(quantization_config={"quant_method": "fp8"}), "f16", "and not as NVFP4"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_no_folder(dense: Path, tmp_path: Path, case: str) -> None:
    spoil, kind, said = BAD[case]
    folder = copied(dense, tmp_path / "in")
    spoil(folder)
    with pytest.raises(SourceError, match=said) as caught:
        make_gguf(folder, tmp_path / "out", kind, NOW)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_nvfp4_is_not_rounded_a_second_time(dense: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="would round it once more; give the BF16 model"):
        make_gguf(nvfp4(dense), tmp_path / "out", "q4_k_m", NOW)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layer_types": ["full_attention"] * 4}, "all that qwen35 knows"),
        ({"linear_key_head_dim": 32}, "to be the same"),
    ],
)
def test_a_hybrid_of_another_pattern_is_refused(hybrid: Path, changes: dict[str, Any], said: str) -> None:
    held = json.loads((hybrid / "config.json").read_text())
    with pytest.raises(SourceError, match=said):
        architecture(held | changes)


@pytest.mark.parametrize("kind", [kind for kind in gguf_command.TYPES if kind != "nvfp4"])
def test_a_file_is_as_large_as_the_plan_says(tmp_path: Path, kind: str) -> None:
    write_gguf(MODELS / "annie-nano-hf", tmp_path / "x.gguf", kind, "x")
    planned = gguf_needed(read_model(MODELS / "annie-nano-hf"), kind)["disk"]
    assert (tmp_path / "x.gguf").stat().st_size == pytest.approx(planned, rel=0.05)


def test_a_wrapped_model_with_a_vision_tower_gives_the_text_model(hybrid: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from quantizer.surgery.wrap import rename, wrap

    state = load_file(hybrid / "model.safetensors")
    nested = {rename(name, "model.language_model."): tensor for name, tensor in state.items()}
    nested |= {"model.visual.x.weight": torch.ones(2, 2), "mtp.fc.weight": torch.ones(2, 2)}
    folder = tmp_path / "vl"
    folder.mkdir()
    save_file(nested, folder / "model.safetensors")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((hybrid / name).read_bytes())
    (folder / "config.json").write_text(json.dumps(wrap(json.loads((hybrid / "config.json").read_text()))))
    for source in (hybrid, folder):
        write_gguf(source, tmp_path / f"{source.name}.gguf", "f16", "x")
    assert (tmp_path / "bf16.gguf").read_bytes() == (tmp_path / "vl.gguf").read_bytes()
