"""Surgery on a folder: each operation detects, does once, and undoes nothing else; bad input loses nothing."""

import argparse
import errno
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from safetensors.torch import load_file  # noqa: E402

from gates.artefact import artefact  # noqa: E402
from quantizer.cli import main, surgery  # noqa: E402
from quantizer.core.errors import ExportError, SourceError  # noqa: E402
from quantizer.nvfp4 import blocks  # noqa: E402
from quantizer.surgery.operation import Server, parse_server  # noqa: E402
from quantizer.surgery.plan import apply_in_place, apply_plan, make_plan  # noqa: E402
from quantizer.surgery.wrap import rename, wrap  # noqa: E402
from quantizer.verify.check import verify  # noqa: E402
from tests.quantizer.checkpoints import ATTENTION, MLP, Checkpoint, weights  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
NOW = datetime(2026, 11, 21, tzinfo=UTC)
NEW, OLD, TEXT = parse_server("vllm-0.33"), parse_server("vllm-0.16"), parse_server("text")
QWEN35 = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "hidden_size": 64,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}


def made(**config: Any) -> Checkpoint:
    """A sound folder, in the words of ModelOpt."""
    checkpoint = Checkpoint.of(weights())
    checkpoint.config |= config
    checkpoint.quant_config["producer"] = {"name": "modelopt", "version": "0.47.0"}
    quant, inner = checkpoint.scheme
    quant["kv_cache_quant_algo"] = None
    inner |= {"producer": checkpoint.quant_config["producer"], "config_groups": {}}
    return checkpoint


def save(checkpoint: Checkpoint, folder: Path, count: int = 1) -> Path:
    """With the modes that a folder should have."""
    checkpoint.save(folder, count)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


def steps(folder: Path, server: Any = NEW) -> dict[str, str]:
    return {step.operation: step.state for step in make_plan(folder, server).steps}


def operated(folder: Path, server: Any) -> Path:
    out = folder.with_name(f"{folder.name}-{server.name}")
    apply_plan(make_plan(folder, server), out, NOW)
    return out


def read(folder: Path, name: str = "config.json") -> Any:
    return json.loads((folder / name).read_text("utf-8"))


def same(one: Any, other: Any) -> bool:
    """Byte for byte."""
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


# ------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("server", ["vllm-0.19", "vllm-0.24", "vllm-0.27"])
def test_an_old_server_gets_a_text_model_wrapped(tmp_path: Path, server: str) -> None:
    source = save(made(**QWEN35), tmp_path / "text", count=2)
    out = operated(source, parse_server(server))

    config = read(out)
    assert (config["model_type"], config["architectures"]) == ("qwen3_5", ["Qwen3_5ForConditionalGeneration"])
    assert config["text_config"]["model_type"] == "qwen3_5_text"
    assert "quantization_config" not in config["text_config"]
    assert {"lm_head", "model.language_model.embed_tokens"} == set(config["quantization_config"]["ignore"])
    assert (out / "preprocessor_config.json").is_file()
    assert verify(out).sound and not verify(out).findings
    for name in ("model-00001-of-00002", "model-00002-of-00002"):
        before, after = load_file(source / f"{name}.safetensors"), load_file(out / f"{name}.safetensors")
        assert {rename(n, "model.language_model.") for n in before} == set(after)
        for old, tensor in before.items():
            held = after[rename(old, "model.language_model.")]
            assert held.dtype == tensor.dtype
            assert same(held, tensor)
    assert set(read(out, "model.safetensors.index.json")["weight_map"]) == {
        rename(n, "model.language_model.") for n in made().tensors
    }


def test_a_vision_tower_is_not_thrown_away(tmp_path: Path) -> None:
    checkpoint = made(**wrap(QWEN35))
    checkpoint.tensors = {rename(n, "model.language_model."): t for n, t in checkpoint.tensors.items()}
    checkpoint.tensors["model.visual.patch_embed.weight"] = torch.zeros(4)
    source = save(checkpoint, tmp_path / "vl")
    assert steps(source, TEXT)["names"] == "refused"
    with pytest.raises(SourceError, match="vision tower"):
        operated(source, TEXT)
    assert [path.name for path in tmp_path.iterdir()] == ["vl"]


# ---------------------------------------------------------------------------------------- quantization


def mix(checkpoint: Checkpoint, layers: dict[str, str], other: Any = None) -> Checkpoint:
    """MIXED_PRECISION as ModelOpt writes it: FP8 per tensor, or with other scales."""
    for name, algorithm in layers.items():
        if algorithm == "FP8":
            dense = blocks.dequantize(blocks.quantize(weights()[f"{name}.weight"]))
            checkpoint.tensors.pop(f"{name}.weight_scale_2")
            scale = dense.abs().amax() / 448
            checkpoint.tensors[f"{name}.weight"] = (dense / scale).to(torch.float8_e4m3fn)
            checkpoint.tensors[f"{name}.weight_scale"] = scale if other is None else other
    every = {name.removesuffix(".weight"): "NVFP4" for name in weights() if "proj" in name} | layers
    for section, key in zip(checkpoint.scheme, ("exclude_modules", "ignore"), strict=True):
        section.pop(key)
        section["quant_algo"] = "MIXED_PRECISION"
        section["quantized_layers"] = {name: {"quant_algo": kind} for name, kind in every.items()}
    return checkpoint


@pytest.mark.parametrize("server", [OLD, NEW])
def test_a_mixture_with_fp8_becomes_plain_nvfp4(tmp_path: Path, server: Server) -> None:
    down, o = f"{MLP}.down_proj", f"{ATTENTION}.o_proj"
    source = save(mix(made(), {down: "FP8", o: "FP8"}), tmp_path / "mixed")
    out = operated(source, server)

    quant = read(out, "hf_quant_config.json")["quantization"]
    assert tuple(quant[k] for k in ("quant_algo", "group_size", "kv_cache_quant_algo")) == ("NVFP4", 16, None)
    assert {"lm_head", "model.embed_tokens", down, o} == set(quant["exclude_modules"])
    assert "quantized_layers" not in quant
    before, after = (load_file(folder / "model.safetensors") for folder in (source, out))
    wanted = before[f"{down}.weight"].float() * before[f"{down}.weight_scale"]
    assert torch.equal(wanted.to(torch.bfloat16), after[f"{down}.weight"])
    assert f"{down}.weight_scale" not in after and f"{down}.input_scale" not in after
    assert torch.equal(before[f"{MLP}.up_proj.weight"], after[f"{MLP}.up_proj.weight"])
    assert verify(out).sound
    assert set(steps(out, server).values()) == {"fine"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: [s.update(quant_algo="NVFP4_AWQ") for s in c.scheme], "NVFP4_AWQ has scales beside the weights"),
        (lambda c: [s.update(quant_algo="NVFP4_SVD") for s in c.scheme], "NVFP4_SVD has scales"),
        (lambda c: c.tensors.update({f"{MLP}.down_proj.pre_quant_scale": torch.ones(96)}), "no server applies it"),
        (lambda c: c.config["quantization_config"].update(quant_method="compressed-tensors"), "only ModelOpt's"),
        (lambda c: [s.pop("quant_algo") for s in c.scheme], "neither configuration names a quant_algo"),
        (lambda c: mix(c, {f"{ATTENTION}.q_proj": "FP8"}), "a server joins it with neighbours that are not NVFP4"),
        (lambda c: mix(c, {f"{MLP}.down_proj": "FP8"}, torch.ones(2, 3)), "FP8 without a scale"),
    ],
)  # fmt: skip
def test_what_no_surgery_cures_is_refused_with_a_way_out(tmp_path: Path, change: Any, said: str) -> None:
    checkpoint = made()
    change(checkpoint)
    source = save(checkpoint, tmp_path / "in")
    with pytest.raises(SourceError, match=said):
        operated(source, NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.quant_config.clear(),
        lambda c: c.config.pop("quantization_config"),
        lambda c: c.quant_config.update(producer={"name": "someone"}),
        lambda c: c.scheme[0].update(exclude_modules=["lm_head", "model.layers.0.mlp"]),
        lambda c: c.scheme[1].update(ignore=[]),
    ],
)
def test_the_two_descriptions_are_made_whole_equal_and_true(tmp_path: Path, change: Any) -> None:
    checkpoint = made()
    change(checkpoint)
    source = save(checkpoint, tmp_path / "half")
    assert steps(source)["quantization"] == "needed"
    out = operated(source, NEW)
    assert verify(out).sound and not verify(out).findings
    assert read(out, "hf_quant_config.json")["producer"]["name"] == "modelopt"
    assert set(steps(out).values()) == {"fine"}


# -------------------------------------------------------------------------------------- access and place


def test_an_owner_is_given_to_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, int]] = []
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: given.append((Path(path).name, uid)))
    source = save(made(), tmp_path / "in")
    apply_plan(make_plan(source, NEW, uid=4711), tmp_path / "out", NOW)
    names, owners = map(set, zip(*given, strict=True))
    assert names > {"config.json", "hf_quant_config.json", "model.safetensors", "artefact.json"}
    assert owners == {4711}

    def refuse(path: Any, uid: int, gid: int) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(ExportError, match="only root can give files to user 4711"):
        apply_plan(make_plan(source, NEW, uid=4711), tmp_path / "other", NOW)
    assert not (tmp_path / "other").exists()


def test_a_folder_is_replaced_only_when_that_is_asked(tmp_path: Path) -> None:
    source = save(made(**QWEN35), tmp_path / "in")
    before = read(source)
    operated(source, parse_server("vllm-0.24"))
    assert before == read(source)

    apply_in_place(make_plan(source, parse_server("vllm-0.24")), NOW)
    assert read(source)["model_type"] == "qwen3_5"
    assert {"in", "in-vllm-0.24"} == {path.name for path in tmp_path.iterdir()}
    assert artefact.load(source).name == "in"


def test_other_files_come_along_and_what_is_no_model_stays(tmp_path: Path) -> None:
    source = save(made(**QWEN35), tmp_path / "in")
    (source / "templates").mkdir()
    for name in ("chat_template.jinja", "templates/xml.jinja", "README.md", "run.py", ".hidden.json"):
        (source / name).write_text("x")
    found = make_plan(source, parse_server("vllm-0.24"))
    apply_plan(found, tmp_path / "out", NOW)
    assert found.before.left == ("run.py",)
    for name in ("chat_template.jinja", "templates/xml.jinja", "README.md"):
        assert (tmp_path / "out" / name).read_text() == "x"
    assert not {"run.py", ".hidden.json"} & {path.name for path in (tmp_path / "out").iterdir()}


# ---------------------------------------------------------------------------------------------- bad input


def link(folder: Path) -> None:
    (folder / "config.json").rename(folder.parent / "elsewhere.json")
    (folder / "config.json").symlink_to(folder.parent / "elsewhere.json")


def config(**changes: Any) -> Any:
    def change(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(read(folder) | changes))

    return change


BAD = {
    "code of its own": (config(auto_map={"AutoModel": "x.Model"}), "config.json has an auto_map"),
    "a pickle": (lambda f: (f / "pytorch_model.bin").write_bytes(b""), "pytorch_model.bin is a pickle"),
    "a pickle below": (lambda f: ((f / "a").mkdir(), (f / "a" / "x.pt").write_bytes(b"")), "a/x.pt is a pickle"),
    "a link": (link, "config.json is a link"),
    "a link among the rest": (lambda f: (f / "a.txt").symlink_to("/etc/passwd"), "a.txt is a link"),
    "no JSON": (lambda f: (f / "tokenizer_config.json").write_text("{"), "cannot be read as JSON"),
    "a changed artefact": (
        lambda f: (artefact.seal(f, name="a", format="hf-nvfp4", created=NOW), config(x=1)(f)),
        "is not what its artefact.json says",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_no_folder(tmp_path: Path, case: str) -> None:
    source = save(made(**QWEN35), tmp_path / "in", count=2)
    spoil, said = BAD[case]
    spoil(source)
    with pytest.raises(SourceError, match=said) as caught:
        apply_plan(make_plan(source, OLD), tmp_path / "out", NOW)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------- the command


def command(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    surgery.add(parser.add_subparsers(dest="verb"))
    args = parser.parse_args(["surgery", *map(str, arguments)])
    return main.run(argparse.Namespace(command="quantize", **vars(args)))


def test_a_check_says_what_there_is_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save(made(**QWEN35), tmp_path / "in")
    assert command(source, "--check", "--for", "vllm-0.24") == 1
    said = capsys.readouterr().out
    assert "do  names" in said and "config.json: qwen3_5_text becomes qwen3_5" in said
    assert command(source, "--check") == 0
    assert "nothing to do" in capsys.readouterr().out


def test_unwrapping_gives_the_text_model_back(tmp_path: Path) -> None:
    source = save(made(**QWEN35), tmp_path / "text")
    back = operated(operated(source, parse_server("vllm-0.24")), TEXT)
    assert read(source) == read(back)
    before, after = (load_file(folder / "model.safetensors") for folder in (source, back))
    assert before.keys() == after.keys() and all(same(before[n], after[n]) for n in before)
    assert not (back / "preprocessor_config.json").exists()
