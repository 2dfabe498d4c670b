"""A model card says what the manifest and the report say, of the folder that they are about."""

import argparse
import shutil
from pathlib import Path

import pytest

from gates.artefact import artefact
from gates.contracts.errors import ReportError
from gates.report.files import open_report
from gates.report.keys import trusted
from quantizer.checkpoint.card import GateReport, card
from quantizer.cli import main

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "models" / "annie-nano-nvfp4-hf"
HOME = ROOT / "docs" / "reports" / "nvfp4-vllm-vs-q4km-llama"
REPORT, TRUST = HOME / "report.json", HOME / "report.pub"


def run(*argv: object) -> int:
    parser = argparse.ArgumentParser()
    main.add(parser.add_subparsers(dest="command"))
    args = parser.parse_args(["quantize", "card", *map(str, argv)])
    return int(args.run(args))


def judged() -> GateReport:
    opened = open_report(REPORT, trusted([TRUST]))
    return GateReport(opened.statement, opened.digest, opened.signers)


def test_a_card_holds_the_digests_the_recipe_and_the_gates_own_summary() -> None:
    text, manifest, found = card(artefact.load(HOME), judged()), artefact.load(HOME), judged().statement

    for digest in (manifest.root, manifest.provenance.data_digest, found.suite.digest, found.policy.digest):
        assert f"`{digest}`" in text
    assert "Recipe `mse`" in text and '"scales": "mse"' in text and "| check, sqnr\\_db | 21.8 |" in text
    assert "### ✓ pass" in text and text.count("| ✓ pass |") > 5


def test_a_report_of_another_folder_is_refused() -> None:
    with pytest.raises(ReportError, match="the report is of artefact"):
        card(artefact.load(ROOT / "models" / "annie-nano-q4_k_m"), judged())


@pytest.mark.parametrize("wrong", ["changed", "no-report"])
def test_what_cannot_be_told_of_is_one_line_and_a_code(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(FOLDER, folder)
    if wrong == "changed":
        (folder / "config.json").write_text("{}", "utf-8")
    more = {
        "changed": [],
        "no-report": ["--report", folder / "no.json"],
    }

    assert run(folder, *more[wrong]) in (65, 66, 74)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said and not (folder / "README.md").exists()
