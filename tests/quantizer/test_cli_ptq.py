"""`manners quantize`: a nano model end to end, and one clear line with its exit code for whatever is wrong."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from app.__main__ import main  # noqa: E402
from gates.artefact import artefact  # noqa: E402
from quantizer.cli import main as quantizer_main  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.ptq import quantize  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


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


def test_what_was_not_proven_is_sealed_as_that(
    source: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = {}
    for proof in ("sample", "none"):
        assert ptq(source, data, tmp_path / proof, "--proof", proof, "--set", "kv_cache=fp8") == 0
        checks[proof] = artefact.load(tmp_path / proof).provenance.recipe["outcome"]["check"]

    assert checks["none"] == {"proof": "none", "layers": 14}
    assert checks["sample"]["proof"] == "sample" and checks["sample"]["parity"]["tokens"] > 100
    assert "nothing was checked (--proof none)" in capsys.readouterr().out
    config = json.loads((tmp_path / "none" / "config.json").read_text())["quantization_config"]
    assert config["kv_cache_scheme"] == {"dynamic": False, "num_bits": 8, "type": "float"}


def test_after_sigterm_resume_goes_on(
    source: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(quantize, "seal", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
        assert ptq(source, data, tmp_path / "out", "--proof", "none") == 130
    assert (
        not (tmp_path / "out").exists()
        and "run the same command again with --resume" in capsys.readouterr().err
    )
    assert ptq(source, data, tmp_path / "out", "--proof", "none", "--resume") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def config(source: Path, **changes: object) -> None:
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_without_torch_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quantizer_main, "find_spec", lambda name: None)

    assert main(["quantize", "export", "models", "--out", "other"]) == 69
    assert (
        capsys.readouterr().err
        == "manners quantize export: torch is not installed, which this needs: make quantizer\n"
    )


def test_the_command_line_starts_without_torch() -> None:
    script = (
        "import sys; from app.__main__ import _parser; _parser();"
        "print([name for name in ('torch', 'transformers', 'numpy', 'safetensors') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)

    assert told.stdout.strip() == "[]"
