"""The check of NVFP4 folders: a whole one passes, and every fault has its code and its line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("safetensors", reason=INSTALL)

from quantizer.verify.check import verify  # noqa: E402
from quantizer.verify.folder import FolderError  # noqa: E402
from quantizer.verify.report import CODES, CheckReport  # noqa: E402
from tests.quantizer.checkpoints import ATTENTION, MLP, Checkpoint, save_source, weights  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
DOWN, O_PROJ = f"{MLP}.down_proj", f"{ATTENTION}.o_proj"


def codes(report: CheckReport) -> list[str]:
    return sorted({finding.code for finding in report.findings})


@pytest.mark.parametrize("shards", [1, 3])
def test_a_whole_folder_is_sound(tmp_path: Path, shards: int) -> None:
    source = save_source(tmp_path / "source", weights())
    report = verify(Checkpoint.of(weights()).save(tmp_path / "nvfp4", shards), source)

    assert report.findings == ()
    assert report.sound
    assert len(report.layers) == 7
    assert report.excluded == ("lm_head", "model.embed_tokens")
    assert (report.same, report.changed) == (3, ())


# ---------------------------------------------------------------- faults in the parts, before they are written

Change = Callable[[Checkpoint], None]


def drop(*names: str) -> Change:
    def change(made: Checkpoint) -> None:
        for name in names:
            del made.tensors[name]

    return change


def put(name: str, value: Callable[[Any], Any]) -> Change:
    """Replace a tensor by a function of it (of None, where it is new)."""

    def change(made: Checkpoint) -> None:
        made.tensors[name] = value(made.tensors.get(name))

    return change


def said(**values: Any) -> Change:
    """Change what both configurations say of quantization."""

    def change(made: Checkpoint) -> None:
        exclude = values.pop("exclude", None)
        for section, key in zip(made.scheme, ("exclude_modules", "ignore"), strict=True):
            section.update(values)
            if exclude is not None:
                section[key] = exclude

    return change


def one_scale(value: float) -> Change:
    """Put a number into one block scale of down_proj."""

    def change(scale: Any) -> Any:
        scale = scale.clone()
        scale.view(torch.uint8)[3, 2] = torch.tensor(value).to(torch.float8_e4m3fn).view(torch.uint8)
        return scale

    return put(f"{DOWN}.weight_scale", change)


def plain_again(name: str) -> Change:
    """A layer that is back in BF16."""

    def change(made: Checkpoint) -> None:
        drop(*(f"{name}.{part}" for part in ("weight_scale", "weight_scale_2", "input_scale")))(made)
        made.tensors[f"{name}.weight"] = weights()[f"{name}.weight"]

    return change


def both(*changes: Change) -> Change:
    def change(made: Checkpoint) -> None:
        for one in changes:
            one(made)

    return change


MIXED = {
    **dict.fromkeys((DOWN, O_PROJ), {"quant_algo": "W4A16_NVFP4", "group_size": 16}),
    f"{ATTENTION}.q_proj": {"quant_algo": "MXFP8"},
}
ALL_BUT_MIXED = [f"{ATTENTION}.{kind}_proj" for kind in "qkv"] + [f"{MLP}.gate_proj", f"{MLP}.up_proj"]

FAULTS: list[tuple[str, str, Change]] = [
    ("missing_scale", "there is no weight_scale", drop(f"{DOWN}.weight_scale")),
    ("missing_scale", "there is no weight_scale_2", drop(f"{DOWN}.weight_scale_2")),
    ("missing_scale", "there is no input_scale", drop(f"{DOWN}.input_scale")),
    ("orphan_scale", f"{DOWN}.input_scale", drop(f"{DOWN}.weight", f"{DOWN}.weight_scale", f"{DOWN}.weight_scale_2")),
    ("dtype", "is F32, must be F8_E4M3", put(f"{DOWN}.weight_scale", lambda t: t.float())),
    ("dtype", "is BF16, must be F32", put(f"{DOWN}.input_scale", lambda t: t.bfloat16())),
    ("dtype", "is I8, must be U8", put(f"{DOWN}.weight", lambda t: t.view(torch.int8))),
    ("shape", "is [64, 5], the weight needs [64, 6]", put(f"{DOWN}.weight_scale", lambda t: t[:, :5].contiguous())),
    ("shape", "is [2], must be one number", put(f"{DOWN}.weight_scale_2", lambda t: t.repeat(2))),
    ("shape", "[64, 44] bytes are not rows of whole blocks", put(f"{DOWN}.weight", lambda t: t[:, :44].contiguous())),
    ("shape", "[0, 48] bytes", put(f"{DOWN}.weight", lambda t: t[:0])),
    ("pre_quant_scale", DOWN, put(f"{DOWN}.pre_quant_scale", lambda _: torch.ones(96))),
    ("not_excluded", "a matrix of BF16 that no exclusion covers", plain_again(DOWN)),
    ("not_excluded", "lm_head", said(exclude=["model.embed_tokens"])),
    ("excluded_but_quantized", DOWN, said(exclude=["lm_head", "model.embed_tokens", "*.down_proj"])),
    ("excluded_but_quantized", DOWN, said(exclude=["lm_head", "model.embed_tokens", DOWN])),
    ("excluded_but_quantized", O_PROJ, said(exclude=["lm_head", "model.embed_tokens", "self_attn.o"])),
    (
        "fused_mixed",
        "k_proj not quantized",
        both(plain_again(f"{ATTENTION}.k_proj"), said(exclude=["lm_head", "*embed*", "*k_proj"])),
    ),
    ("fused_scales", "up_proj", put(f"{MLP}.up_proj.weight_scale_2", lambda t: t * 1.5)),
    ("fused_scales", "v_proj 0.002", put(f"{ATTENTION}.v_proj.input_scale", lambda t: t * 2)),
    ("scale_bound", "zero or negative in 1 of 384 blocks", one_scale(0.0)),
    ("scale_bound", "zero or negative in 1 of 384 blocks", one_scale(-2.0)),
    ("scale_bound", "is 0.0", put(f"{DOWN}.weight_scale_2", torch.zeros_like)),
    ("scale_bound", "is -0.001", put(f"{DOWN}.input_scale", torch.neg)),
    ("not_finite", "NaN in 1 of 384 blocks", one_scale(float("nan"))),
    ("not_finite", "is inf", put(f"{DOWN}.weight_scale_2", lambda t: t / 0)),
    ("not_finite", "is nan", put(f"{DOWN}.input_scale", lambda t: t * float("nan"))),
    ("all_zero", DOWN, put(f"{DOWN}.weight", lambda t: torch.full_like(t, 0x80))),
    ("algorithm", "vLLM knows no NVFP4_AWQ", said(quant_algo="NVFP4_AWQ")),
    ("algorithm", "vLLM knows no NVFP4_SVD", said(quant_algo="NVFP4_SVD")),
    ("group_size", "group_size is 32", lambda made: made.scheme[0].update(group_size=32)),
    ("config_mismatch", "NVFP4 there and W4A16_NVFP4", lambda made: made.scheme[1].update(quant_algo="W4A16_NVFP4")),
    ("config_mismatch", "first in model.norm", lambda made: made.scheme[1]["ignore"].append("model.norm")),
    ("config_missing", "hf_quant_config.json", lambda made: made.quant_config.clear()),
    ("config_missing", "config.json", lambda made: made.config.clear()),
    ("bad_json", "ignore must be a list of names", lambda made: made.scheme[1].update(ignore=7)),
    ("unknown_name", "model.visual*", said(exclude=["lm_head", "model.embed_tokens", "model.visual*"])),
    ("prefix", "config.json is of 'qwen3'", lambda made: made.config.update(text_config={})),
    (
        "other_format",
        "MXFP8 is not checked",
        both(*map(plain_again, ALL_BUT_MIXED), said(quant_algo="MIXED_PRECISION", exclude=[], quantized_layers=MIXED)),
    ),
]  # fmt: skip
ALONGSIDE = {"config_mismatch": {"bad_json"}, "not_excluded": {"dtype"}}
"""Codes that come with another: the list that is no list differs from the other one."""


@pytest.mark.parametrize(("code", "words", "change"), FAULTS, ids=[f"{c}-{w}" for c, w, _ in FAULTS])
def test_a_fault_is_found_and_named(tmp_path: Path, code: str, words: str, change: Change) -> None:
    made = Checkpoint.of(weights())
    change(made)
    report = verify(made.save(tmp_path / "nvfp4"))
    lines = [str(finding) for finding in report.findings if finding.code == code]

    assert any(words in line for line in lines), report.findings
    assert all("\n" not in line for line in lines)
    assert report.sound == (CODES[code][0] == "warning")
    assert {c for c in codes(report) if code not in ALONGSIDE.get(c, ())} == {code}


# ---------------------------------------------------------------------------------------- faults in the files


def replace_by_link(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").rename(folder.parent / "elsewhere")
    (folder / "model-00001-of-00002.safetensors").symlink_to(folder.parent / "elsewhere")


def edit_index(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        document = json.loads(path.read_text())
        change(document["weight_map"])
        path.write_text(json.dumps(document))

    return edit


def cut(name: str, kept: float) -> Callable[[Path], None]:
    def truncate(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * kept)])

    return truncate


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
COMPLEX = (
    (64).to_bytes(8, "little") + b'{"x":{"dtype":"C64","shape":[],"data_offsets":[0,8]}}'.ljust(64) + bytes(8)
)
BROKEN: list[tuple[str, str, Callable[[Path], Any]]] = [
    ("link", FIRST, replace_by_link),
    ("pickle", "pytorch_model.bin", lambda folder: (folder / "pytorch_model.bin").touch()),
    ("bad_json", "config.json", cut("config.json", 0.5)),
    ("bad_json", "must be a JSON object", lambda folder: (folder / "config.json").write_text("[]")),
    ("bad_json", "hf_quant_config.json", lambda folder: (folder / "hf_quant_config.json").write_bytes(b"\xff")),
    *[("broken_shard", FIRST, cut(FIRST, kept)) for kept in (0, 0.0005, 0.05, 0.5, 0.999)],
    ("broken_shard", SECOND, lambda folder: (folder / SECOND).write_bytes(b"\xff" * 4000)),
    ("broken_shard", "x is of the type C64", lambda folder: (folder / SECOND).write_bytes(COMPLEX)),
    ("missing_shard", SECOND, lambda folder: (folder / SECOND).unlink()),
    ("bad_index", "which does not hold it", edit_index(lambda index: index.update({"lost.weight": FIRST}))),
    ("bad_index", "the index does not say so", edit_index(lambda index: index.pop("model.norm.weight"))),
    ("bad_index", "is not the name of a file", edit_index(lambda index: index.update({"x": "../x.safetensors"}))),
    ("bad_index", "is not the name of a file", edit_index(lambda index: index.update({"x": "x" * 300}))),
    ("bad_index", "is not the name of a file", edit_index(lambda index: index.update({"x": "\u0c95" * 100}))),
    ("bad_index", "is not the name of a file", edit_index(lambda index: index.update({"x": "x\0y"}))),
    ("bad_index", "is not the name of a file", edit_index(lambda index: index.update({"x": ".."}))),
    ("bad_index", "must map tensors to files", edit_index(lambda index: index.update({"x": 5}))),
    ("bad_json", "index.json", cut("model.safetensors.index.json", 0.7)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "words", "damage"), BROKEN, ids=[f"{c}-{w}" for c, w, _ in BROKEN])
def test_damaged_files_are_one_clear_line_each(
    tmp_path: Path, code: str, words: str, damage: Callable[[Path], Any]
) -> None:
    folder = Checkpoint.of(weights()).save(tmp_path / "nvfp4", shards=2)
    damage(folder)
    report = verify(folder)
    lines = [str(finding) for finding in report.findings]

    assert [line for line in lines if f"[{code}]" in line and words in line]
    assert all("\n" not in line for line in lines)
    assert not report.sound
    assert set(codes(report)) <= {code, "config_missing"}


def test_a_tensor_in_two_shards_is_found(tmp_path: Path) -> None:
    folder = Checkpoint.of(weights()).save(tmp_path / "nvfp4")
    (folder / "more.safetensors").write_bytes((folder / "model.safetensors").read_bytes())

    assert codes(verify(folder)) == ["duplicate"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "there is no safetensors file"),
        (lambda f: [p.write_text("{}") for p in f.glob("*.json")], "names a quant_algo"),
        (lambda f: [p.write_text("{") for p in f.glob("*.json")], "names a quant_algo (config.json: cannot be read"),
        (
            lambda f: (f / "config.json").write_text('{"quantization_config":{"quant_method":"compressed-tensors"}}'),
            "quantized by 'compressed-tensors'",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_looked_at_is_one_clear_line(
    tmp_path: Path, damage: Callable[[Path], Any], words: str
) -> None:
    folder = Checkpoint.of(weights()).save(tmp_path / "nvfp4")
    damage(folder)

    with pytest.raises(FolderError) as caught:
        verify(folder)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# --------------------------------------------------------------------------------------------- against a source

SOURCES: list[tuple[str, str, Callable[[dict[str, Any]], Any]]] = [
    ("source_missing", "has no such weight", lambda source: source.pop(f"{DOWN}.weight")),
    ("source_shape", "[96, 64] in", lambda source: source.update({f"{DOWN}.weight": torch.ones(96, 64)})),
    ("dropped", "mtp.fc.weight", lambda source: source.update({"mtp.fc.weight": torch.ones(4)})),
    ("far_from_source", "dB", lambda source: source[f"{DOWN}.weight"].neg_()),
    ("not_nearest", "weights, up to", lambda source: source[f"{DOWN}.weight"].mul_(1.07)),
]


@pytest.mark.parametrize(("code", "words", "change"), SOURCES, ids=[code for code, _, _ in SOURCES])
def test_a_source_that_does_not_fit_is_named(
    tmp_path: Path, code: str, words: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    made, source = Checkpoint.of(weights()), weights()
    change(source)
    report = verify(made.save(tmp_path / "nvfp4"), save_source(tmp_path / "source", source))

    assert [finding for finding in report.findings if finding.code == code and words in str(finding)]
    assert codes(report) == [code]


def test_swapped_nibbles_show_against_the_source(tmp_path: Path) -> None:
    made = Checkpoint.of(weights())
    made.tensors[f"{DOWN}.weight"] = (made.tensors[f"{DOWN}.weight"] >> 4) | (
        made.tensors[f"{DOWN}.weight"] << 4
    )
    folder = made.save(tmp_path / "nvfp4")

    assert verify(folder).sound
    found = verify(folder, save_source(tmp_path / "source", weights())).findings
    assert [(finding.code, finding.where) for finding in found] == [("nibble_order", f"{DOWN}.weight")]


def test_every_code_has_a_test() -> None:
    shown = {code for code, *_ in [*FAULTS, *BROKEN, *SOURCES]} | {"duplicate", "nibble_order"}

    assert shown == CODES.keys()
