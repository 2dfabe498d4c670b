"""A LoRA adapter as PEFT saves it is a source: merged as PEFT's own formula says, and refused where it is more than that."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from safetensors.torch import save_file  # noqa: E402

from app.__main__ import main  # noqa: E402
from quantizer.checkpoint.adapter import CONFIG  # noqa: E402
from quantizer.checkpoint.from_gguf import as_folder  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.verify.check import verify  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
UP, Q = "model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj"
RANK = 4


def adapter(folder: Path, base: Path, **config: Any) -> dict[str, Any]:
    """An adapter of two matrices; its tensors."""
    folder.mkdir()
    generator, tensors = torch.Generator().manual_seed(1), {}
    for name in (UP, Q):
        out, width = folders.load(base)[f"{name}.weight"].shape
        for part, shape in (("lora_A", (RANK, width)), ("lora_B", (out, RANK))):
            tensors[f"base_model.model.{name}.{part}.weight"] = torch.randn(shape, generator=generator) / 8
    save_file(tensors, folder / "adapter_model.safetensors")
    plain = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": RANK, "lora_alpha": 8}
    (folder / CONFIG).write_text(json.dumps(plain | config))
    return tensors


@pytest.mark.parametrize(
    "config, scales",
    [
        ({"init_lora_weights": True}, {UP: 2.0, Q: 2.0}),
        ({"use_rslora": True}, {UP: 8 / math.sqrt(RANK), Q: 8 / math.sqrt(RANK)}),
        ({"alpha_pattern": {"up_proj": 2}}, {UP: 0.5, Q: 2.0}),
    ],
)
def test_the_merged_folder_is_the_base_and_the_scaled_product(
    config: dict[str, Any], scales: dict[str, float], tmp_path: Path
) -> None:
    base = folders.bare(tiny.qwen3, tmp_path / "base").path
    learned, before = adapter(tmp_path / "lora", base, **config), folders.load(base)

    with as_folder(tmp_path / "lora", tmp_path / "out") as folder:
        after, names = folders.load(folder), {path.name for path in folder.iterdir()}

    assert after.keys() == before.keys() and CONFIG not in names
    for name, weight in before.items():
        wanted = weight
        if scale := scales.get(name.removesuffix(".weight")):
            up, down = (
                learned[f"base_model.model.{name.removesuffix('weight')}{p}.weight"]
                for p in ("lora_B", "lora_A")
            )
            wanted = (weight.float() + scale * up @ down).bfloat16()
            assert not torch.equal(wanted, weight)
        assert torch.equal(after[name], wanted), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "lora"]


def ptq(source: Path, out: Path, *more: str) -> int:
    data = conversations.write(out.parent / "rows.jsonl", 3)
    given = ["--source", str(source), "--data", str(data), "--out", str(out), "--device", "cpu"]
    return main(["quantize", "ptq", *given, "--set", "calibrate.conversations=2", *more])


def test_a_fine_tune_is_quantized_by_the_command(tmp_path: Path) -> None:
    base = folders.save(tiny.qwen3, tmp_path / "base")
    adapter(tmp_path / "lora", base, base_model_name_or_path="somebody/base")

    assert ptq(tmp_path / "lora", tmp_path / "out", "--base", str(base)) == 0
    assert verify(tmp_path / "out").sound and verify(tmp_path / "out", base).fit


Q_PROJ = "base_model.model.model.layers.1.self_attn.q_proj"
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"peft_type": "LOHA"}, {}, "peft_type 'LOHA' is more than LoRA on linear layers"),
    ({"init_lora_weights": "pissa"}, {}, "init_lora_weights 'pissa' is more"),
    ({"use_dora": True}, {f"{Q_PROJ}.lora_magnitude_vector": (64,)}, "lora_magnitude_vector is more"),
    ({}, {"base_model.model.lm_head.weight": (96, 64)}, "lm_head.weight is more than LoRA"),
    ({}, {f"{Q_PROJ}s.lora_A.weight": (4, 64)}, "q_projs.lora_A.weight is more than LoRA"),
    ({}, {f"{Q_PROJ}.lora_A.weight": (4, 32)}, "q_proj is [64, 4] times [4, 32], the base's [64, 64]"),
    ({"base_model_name_or_path": "somebody/base"}, {}, "its base somebody/base is no local folder"),
]  # fmt: skip


@pytest.mark.parametrize("config, more, line", REFUSED)
def test_what_is_not_merged_is_one_line_and_a_code(
    config: dict[str, Any],
    more: dict[str, Any],
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = folders.bare(tiny.qwen3, tmp_path / "base").path
    tensors = adapter(tmp_path / "lora", base, **config)
    tensors |= {name: torch.ones(shape) for name, shape in more.items()}
    save_file(tensors, tmp_path / "lora" / "adapter_model.safetensors")

    capsys.readouterr()  # of the progress of saving
    assert ptq(tmp_path / "lora", tmp_path / "out") == 66
    told = capsys.readouterr().err
    assert line in told and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_base_beside_what_is_no_adapter_is_one_line_and_a_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, data = folders.save(tiny.qwen3, tmp_path / "base"), conversations.write(tmp_path / "rows.jsonl", 3)
    given = ["--source", str(base), "--base", str(base), "--data", str(data), "--out", str(tmp_path / "out")]
    capsys.readouterr()  # of the progress of saving
    assert main(["quantize", "sft", *given, "--device", "cpu"]) == 66
    assert "is no adapter: leave --base out" in capsys.readouterr().err
