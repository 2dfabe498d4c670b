"""`manners quantize`: a nano model end to end, and one clear line with its exit code for whatever is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from app.__main__ import main  # noqa: E402
from gates.artefact import artefact  # noqa: E402
from gates.artefact.lineage import same_lineage  # noqa: E402
from quantizer.cli import main as quantizer_main  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
NANO = folders.NANO


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conversations.write(tmp_path_factory.mktemp("data") / "rows.jsonl", 6)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return folders.save(tiny.qwen3, tmp_path / "source")


def ptq(source: Path, data: Path, out: Path, *more: str) -> int:
    fixed = ["--source", str(source), "--data", str(data), "--out", str(out), "--device", "cpu"]
    return main(["quantize", "ptq", *fixed, *more])


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
@pytest.mark.parametrize("verb", ["ptq", "qat"])
def test_a_device_that_is_not_there_is_one_line(
    verb: str, device: str, data: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--source", str(source), "--data", str(data), "--out", str(tmp_path / "out"), "--device", device]
    assert main(["quantize", verb, *given]) == 69
    told = capsys.readouterr().err
    assert told.startswith(f"manners quantize {verb}: --device {device}: ") and told.count("\n") == 1


@pytest.mark.nightly  # the next one runs the command on a tiny model, and test_every_recipe.py proves what each recipe writes
def test_a_nano_model_goes_from_bf16_to_a_proven_folder(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default recipe on the shipped model, on a CPU; a third of the size, and still the same model to the gates."""
    out = tmp_path / "annie-nano-nvfp4"
    assert ptq(NANO, data, out, "--json") == 0
    told = json.loads(capsys.readouterr().out)

    assert told["check"]["layers"] == 56 and 20 < told["check"]["sqnr_db"] < 21
    assert told["check"]["parity"]["equal"] == told["check"]["parity"]["tokens"] > 1000
    made, before = artefact.load(out), artefact.load(NANO)
    assert (made.name, made.format, made.root) == ("annie-nano", "hf-nvfp4", told["root"])
    assert same_lineage(made, before)
    size = (out / "model.safetensors").stat().st_size
    assert 0.30 < size / (NANO / "model.safetensors").stat().st_size < 0.36

    assert main(["quantize", "verify", str(out), "--source", str(NANO)]) == 0
    assert capsys.readouterr().out.rstrip().endswith("sound")


def test_people_are_told_what_came_out(
    source: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ptq(source, data, tmp_path / "out", "--recipe", "auto_mixed", "--set", "auto.samples=1") == 0
    told = capsys.readouterr().out

    for words in (
        "hf-nvfp4, sha256:",
        "dB signal to rounding noise",
        "tokens, to the bit",
        "<- taken",
        "GB at most",
    ):
        assert words in told


def test_svdquant_is_a_report_and_says_why(
    source: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table on stdout, the reason on stderr, and nothing at the place of the result."""
    assert ptq(source, data, tmp_path / "out", "--recipe", "svdquant", "--json") == 69
    told = capsys.readouterr()

    assert len(json.loads(told.out)) == 14
    assert told.err.startswith("manners quantize ptq: svdquant is a report: no server loads its branch")
    assert not (tmp_path / "out").exists()


def test_the_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", "recipes"]) == 0
    text = capsys.readouterr().out
    assert main(["quantize", "recipes", "--json"]) == 0

    assert "four_over_six      ptq     blocks end at 6 or at 4" in text
    assert {recipe["name"] for recipe in json.loads(capsys.readouterr().out)} >= {"qad", "awq_lite"}


Spoil = Callable[[Path, Path, Path], list[str] | None]


def config(source: Path, **changes: object) -> None:
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def other_architecture(source: Path, data: Path, out: Path) -> None:
    config(source, model_type="gpt_oss")


def broken_shard(source: Path, data: Path, out: Path) -> None:
    path = source / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def taken(source: Path, data: Path, out: Path) -> None:
    out.mkdir()


def no_assistant(source: Path, data: Path, out: Path) -> list[str]:
    mine = source.parent / "mine.jsonl"
    mine.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}]}) + "\n")
    return ["--data", str(mine)]


def not_json(source: Path, data: Path, out: Path) -> list[str]:
    mine = source.parent / "mine.jsonl"
    mine.write_text('{"messages"\n')
    return ["--data", str(mine)]


def own_recipe(source: Path, data: Path, out: Path) -> list[str]:
    mine = source.parent / "mine.toml"
    mine.write_text("[weights]\nscale = 'mse'\n")
    return ["--recipe", str(mine)]


def no_tokenizer(source: Path, data: Path, out: Path) -> None:
    (source / "tokenizer.json").unlink()


def scores_of_another_run(source: Path, data: Path, out: Path) -> list[str]:
    (out.parent / f".{out.name}.scores.jsonl").write_text('{"run": {}}\n')
    return ["--recipe", "auto_mixed", "--set", "auto.samples=1"]


REFUSED: list[tuple[Spoil, int, str]] = [
    (other_architecture, 66, "models of type 'gpt_oss' are not supported; supported: qwen3, qwen3_moe, llama, gemma3_text, qwen3_5_text, qwen3_5"),
    (broken_shard, 66, "error: model.safetensors: "),
    (no_tokenizer, 66, "tokenizer"),
    (taken, 73, "is there already; name another folder, or remove it"),
    (no_assistant, 65, "mine.jsonl:1: has no message of the assistant's, so there is nothing to learn"),
    (not_json, 65, "mine.jsonl:1: not JSON"),
    (own_recipe, 78, "weights.scale: unknown key; did you mean 'scales'?"),
    (scores_of_another_run, 65, "scores of another run; remove it to start over"),
    (lambda *_: ["--recipe", "defualt"], 78, "defualt: no such recipe; did you mean 'default'?"),
    (lambda *_: ["--recipe", "qad"], 78, "qad trains: run it with manners quantize qat (or qad), not ptq"),
    (lambda *_: ["--set", "layers.exclude=['*gate']"], 78, "layers.exclude: '*gate' matches no layer"),
    (lambda *_: ["--set", "layers.exclude=['*k_proj']"], 78, "a server joins"),
    (lambda *_: ["--set", "layers.deltanet=false"], 78, "this model has no DeltaNet layer"),
    (lambda *_: ["--source", "/nowhere"], 66, "/nowhere: no such folder"),
    (lambda *_: ["--data", "/nowhere.jsonl"], 65, "/nowhere.jsonl: cannot be read (No such file or directory)"),
    (lambda *_: ["--set", "calibrate.max_tokens=16"], 65, "holds no sample that can be used"),
]  # fmt: skip


@pytest.mark.parametrize("spoil, code, line", REFUSED)
def test_bad_input_is_one_line_and_leaves_nothing(
    spoil: Spoil,
    code: int,
    line: str,
    source: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With its exit code, and what lay there before untouched."""
    more = spoil(source, data, tmp_path / "out") or []

    with folders.nothing_left(tmp_path):
        assert ptq(source, data, tmp_path / "out", *more) == code
    told = capsys.readouterr().err.strip().splitlines()
    assert told[-1].startswith("manners quantize ptq: ") and line in told[-1]
    assert not any("Traceback" in said for said in told)


def test_a_missing_flag_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["quantize", "ptq", "--recipe", "mse"])

    assert stopped.value.code == 64
    assert "the following arguments are required: --source, --data, --out" in capsys.readouterr().err


def test_without_torch_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gateway's host has none."""
    monkeypatch.setattr(quantizer_main, "find_spec", lambda name: None)

    assert main(["quantize", "export", "models", "--out", "other"]) == 69
    assert (
        capsys.readouterr().err
        == "manners quantize export: torch is not installed, which this needs: make quantizer\n"
    )


def test_the_command_line_starts_without_torch() -> None:
    """Every `manners` reads the quantizer's flags; none pays for what they lead to."""
    script = (
        "import sys; from app.__main__ import _parser; _parser();"
        "print([name for name in ('torch', 'transformers', 'numpy', 'safetensors') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)

    assert told.stdout.strip() == "[]"
