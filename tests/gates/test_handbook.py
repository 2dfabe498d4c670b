"""docs/gates.md says what the code says."""

import re
import shlex
from pathlib import Path

import pytest

from gates.artefact import artefact
from gates.artefact.manifest import same_lineage
from tests.gates.handbook import DOCUMENT, written

TEXT = DOCUMENT.read_text("utf-8")


def test_its_figures_are_current() -> None:
    assert written(TEXT) == TEXT


def test_exit_codes_are_those_of_the_command() -> None:
    from os import EX_CONFIG, EX_DATAERR, EX_UNAVAILABLE

    from app.cli.gate import EXIT_CODES

    for code in (*EXIT_CODES.values(), EX_DATAERR, EX_UNAVAILABLE, EX_CONFIG):
        assert re.search(rf"^\| {code} \|", TEXT, re.M), code
    assert all(f"| {code} | {verdict}" in TEXT for verdict, code in EXIT_CODES.items())


def block(language: str) -> str:
    """Its one example in this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)
    return str(found)


def test_its_example_seals_two_folders_of_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.__main__ import main

    for name in ("annie-9b", "annie-9b-nvfp4"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(name)
    monkeypatch.chdir(tmp_path)
    for line in block("sh").splitlines():
        assert main(shlex.split(line)[1:]) == 0
    made = artefact.load(tmp_path / "annie-9b"), artefact.load(tmp_path / "annie-9b-nvfp4")
    assert same_lineage(made[1], made[0], made)


def test_its_configuration_can_be_loaded(tmp_path: Path) -> None:
    from app.config.config import load

    (tmp_path / "gate.toml").write_text(block("toml"), "utf-8")
    config = load(tmp_path / "gate.toml")
    assert config.engines.keys() == {"bf16", "nvfp4"}
    assert config.gates.suite == config.gates.policy == "annie"
