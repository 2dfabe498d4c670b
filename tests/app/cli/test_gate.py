"""`manners gate seal`."""

import os
import shutil
from pathlib import Path

import pytest

from app.__main__ import main
from gates.artefact import artefact

MODELS = Path(__file__).parents[3] / "models"


def test_a_folder_is_sealed_as_the_form_of_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "m.gguf").write_bytes(b"GGUF")
    source = artefact.load(MODELS / "annie-nano-hf")
    code = main(["gate", "seal", str(tmp_path / "mine"), "--name", "annie-nano", "--format", "gguf-q4_k_m",
               "--source", str(MODELS / "annie-nano-hf")])  # fmt: skip
    made = artefact.load(tmp_path / "mine")
    assert code == 0 and made.root in capsys.readouterr().out
    assert made.provenance.parents == {"source": source.root}
    assert made.provenance.base_model == source.provenance.base_model
    assert artefact.verify(tmp_path / "mine") == []


@pytest.mark.parametrize(
    "folder, format, why",
    [
        ("annie-nano-q4_k_m", "hf-nvfp4", "it holds a .gguf file"),
        ("annie-nano-q4_k_m", "gguf-f16", "its file is a GGUF of type gguf-q4_k_m"),
        ("annie-nano-nvfp4-hf", "gguf-nvfp4", "it holds no .gguf file"),
        ("annie-nano-nvfp4-hf", "hf-bf16", "its configuration says NVFP4"),
        ("annie-nano-hf", "hf-nvfp4", "its configuration says nothing of NVFP4"),
    ],
)
def test_a_folder_is_not_sealed_as_what_it_is_not(
    folder: str, format: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(MODELS / folder, tmp_path / "it", copy_function=os.symlink)
    before = (tmp_path / "it" / "artefact.json").read_bytes()
    assert main(["gate", "seal", str(tmp_path / "it"), "--name", "a", "--format", format]) == 65
    assert f"--format {format}, but {why}" in capsys.readouterr().err
    assert (tmp_path / "it" / "artefact.json").read_bytes() == before


def test_a_file_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "b.gguf").touch()
    argv = ["gate", "seal", str(tmp_path / "b.gguf"), "--name", "a", "--format", "gguf-f16"]
    assert (main(argv), main(argv)) == (0, 0)
    assert (tmp_path / "b" / "b.gguf").samefile(tmp_path / "b.gguf") and artefact.verify(tmp_path / "b") == []
