"""`manners gate seal`."""

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
