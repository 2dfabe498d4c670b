"""`manners quantize verify`: exit codes, one line for a wrong call, a table for people and JSON for scripts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from app.__main__ import main  # noqa: E402
from tests.quantizer.checkpoints import MLP, Checkpoint, save_source, weights  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def run(argv: list[str]) -> int:
    """The exit code of `manners quantize verify`."""
    try:
        return main(["quantize", "verify", *argv])
    except SystemExit as stopped:  # argparse ends the process where a flag is wrong
        return int(stopped.code or 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Checkpoint.of(weights()).save(tmp_path / "nvfp4")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save_source(tmp_path / "source", weights())


def broken(tmp_path: Path) -> Path:
    made = Checkpoint.of(weights())
    made.tensors[f"{MLP}.up_proj.weight_scale_2"] *= 2
    made.tensors[f"{MLP}.down_proj.input_scale"] *= float("nan")
    return made.save(tmp_path / "broken")


def test_a_faulty_folder_exits_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(broken(tmp_path))]) == 1
    out = capsys.readouterr().out
    assert "error fused_scales (1): a server fuses these layers" in out
    assert f"{MLP}.down_proj.input_scale: is nan" in out
    assert "not sound: 2 errors" in out


def test_json_holds_everything(folder: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(folder), "--source", str(source), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert document["sound"] is True
    assert document["algorithm"] == "NVFP4"
    names = [layer["name"] for layer in document["layers"]]
    assert names == sorted(names) and len(names) == 7
    assert document["layers"][0]["shape"] == [64, 96]
    assert document["layers"][0]["fit"]["worst_error_gaps"] <= 0.501
    assert 18 < document["fit"]["sqnr_db"] < 23
    assert document["unquantized"] == {"same": 3, "changed": []}


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        ([], 64, "required: DIR"),
        (["DIR", "--sauce", "x"], 64, "--sauce"),
        (["nowhere"], 65, "nowhere: no such folder"),
        (["DIR", "--source", "nowhere"], 65, "nowhere: no such folder"),
    ],
)
def test_a_wrong_call_is_one_clear_line(
    folder: Path, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, words: str
) -> None:
    assert run([str(folder) if arg == "DIR" else arg for arg in argv]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_it_needs_neither_modelopt_nor_transformers(folder: Path, source: Path) -> None:
    program = (
        "import sys; sys.modules.update(modelopt=None, transformers=None); "
        "from app.__main__ import main; sys.exit(main(['quantize', 'verify', *sys.argv[1:]]))"
    )
    done: Any = subprocess.run(
        [sys.executable, "-c", program, str(folder), "--source", str(source), "--json"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sound"]
