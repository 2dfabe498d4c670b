"""The reports in docs/reports: genuine, complete, and refused for weights that they are not about."""

import lzma
import shutil
from pathlib import Path

import pytest

from app.__main__ import main

ROOT = Path(__file__).parents[3]
REPORT = ROOT / "docs" / "reports" / "nvfp4-vllm-vs-q4km-llama"
FOLDER = ROOT / "models" / "annie-nano-nvfp4-hf"


def verify(report: Path, *more: str) -> int:
    return main(["gate", "verify", str(report), "--trust", str(REPORT / "report.pub"), *more])


@pytest.mark.slow  # a whole shipped report is read: 2 s
def test_the_report_of_nvfp4_on_vllm_is_genuine_and_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(REPORT / "report.json", tmp_path)
    with lzma.open(REPORT / "samples.jsonl.xz") as packed, (tmp_path / "samples.jsonl").open("wb") as out:
        shutil.copyfileobj(packed, out)

    assert verify(tmp_path / "report.json") == 0
    said = capsys.readouterr().out
    assert "yes  signature: by sha256:" in said and "yes  samples: all 4,833 as signed" in said


def test_a_report_about_the_weights_before_is_refused_for_todays(capsys: pytest.CaptureFixture[str]) -> None:
    """annie-nano was trained on after this report was made."""
    assert verify(REPORT / "report.json", "--artefact", str(FOLDER)) != 0
    assert (
        "mismatch_artefact: the report is of artefact annie-nano sha256:6775995808e9, not of"
        in capsys.readouterr().err
    )
