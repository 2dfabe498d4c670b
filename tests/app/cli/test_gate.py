"""`manners gate` on the command line: what is wrong is one line and a code."""

import re
from pathlib import Path

import pytest

from app.__main__ import main
from app.config.config import load
from gates.artefact import artefact

ROOT = Path(__file__).parents[3]
MODELS = ROOT / "models"


def run(*argv: str) -> int:
    """The exit code."""
    try:
        return main(["gate", *argv])
    except SystemExit as left:
        return int(left.code or 0)


def test_a_folder_is_sealed_as_the_form_of_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "m.gguf").write_bytes(b"GGUF")
    source = artefact.load(MODELS / "annie-nano-hf")
    code = run("seal", str(tmp_path / "mine"), "--name", "annie-nano", "--format", "gguf-q4_k_m",
               "--source", str(MODELS / "annie-nano-hf"))  # fmt: skip
    made = artefact.load(tmp_path / "mine")
    assert code == 0 and made.root in capsys.readouterr().out
    assert made.provenance.parents == {"source": source.root}
    assert made.provenance.base_model == source.provenance.base_model
    assert artefact.verify(tmp_path / "mine") == []


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["seal", "nowhere", "--name", "a", "--format", "hf-bf16"], 65, "nowhere: no such folder"),
        (["seal", "{tmp}", "--name", "a", "--format", "bf16"], 65, "format is 'bf16'"),
        (["verify", "nowhere.json"], 65, "keys: cannot be read"),
        (
            ["run", "--candidate", "nobody", "--baseline", "annie-nano", "--out", "{tmp}"],
            69,
            "no engine 'nobody'",
        ),
        (
            [
                "run",
                "--candidate",
                "annie-nano",
                "--baseline",
                "annie-nano",
                "--suite",
                "anni",
                "--out",
                "{tmp}",
            ],
            65,
            "annie",
        ),
        (
            [
                "run",
                "--candidate",
                "annie-nano",
                "--baseline",
                "annie-nano",
                "--policy",
                "nano",
                "--out",
                "{tmp}",
            ],
            65,
            "no such policy",
        ),
        (["run", "--candidate", "a", "--baseline", "b", "--config", "nowhere.toml"], 78, "nowhere.toml"),
        (["run", "--candidate", "annie-nano"], 64, "--baseline"),
        (
            [
                "run",
                "--candidate",
                "annie-nano",
                "--baseline",
                "annie-nano",
                "--control",
                "x",
                "--out",
                "{tmp}",
            ],
            69,
            "NAME=ENGINE",
        ),
        (
            ["run", "--candidate", "a", "--baseline", "b", "--attach", "{tmp}/none", "--out", "{tmp}"],
            69,
            "none: cannot be copied (No such file",
        ),
        ([], 64, "VERB"),
    ],
)
def test_what_is_wrong_is_one_line_and_a_code(
    argv: list[str], code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "a-file").write_text("x")
    assert run(*(part.format(tmp=tmp_path) for part in argv)) == code
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1 and "Traceback" not in said


@pytest.mark.parametrize("page", ["README.md", "docs/gates.md"])
def test_the_pages_lines_are_about_one_engine(page: str) -> None:
    """What is gated is verified and promoted, from the report that the run writes, against the model's baseline."""
    text, config = (ROOT / page).read_text("utf-8"), load(None)
    ((candidate, baseline),) = re.findall(r"manners gate run --candidate ([\w-]+) --baseline ([\w-]+)", text)
    ((report, about),) = re.findall(r"manners gate verify (\S+) --artefact (annie-nano\S+)", text)
    promoted = re.findall(r"manners promote annie (\S+) --report (\S+)", text)

    assert report == "gate/report.json" and baseline == config.models["annie"].baseline
    assert about == candidate and candidate in config.engines
    assert promoted == [(candidate, report)] if page == "README.md" else not promoted
    assert candidate not in config.models["annie"].live
