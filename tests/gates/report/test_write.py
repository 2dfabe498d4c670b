"""Three files beside each other: signed, readable, and complete when report.json is there."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gates.contracts.errors import ReportError, RunError
from gates.report import dsse
from gates.report.verify import VerifiedReport, open_report, verify_report
from gates.report.write import attach, write_report
from tests.gates.report import examples
from tests.gates.report.examples import KEY

ARMS = {
    "candidate": examples.all_cases(examples.CANDIDATE_FEW),
    "baseline": examples.all_cases(examples.BASELINE_FEW),
}
TRUSTED = {dsse.key_id(KEY.public_key()): KEY.public_key()}


def test_a_report_is_three_files_that_show_one_statement(tmp_path: Path) -> None:
    written = write_report(tmp_path / "out", examples.passing(), KEY, examples.said)
    opened = open_report(written.path, TRUSTED)

    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.html", "report.json", "report.md"]
    assert (opened.statement, opened.digest) == (examples.passing(), written.digest)
    for name in ("report.html", "report.md"):
        assert written.statement_digest in (tmp_path / "out" / name).read_text("utf-8")


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(RunError, match="cannot be written there"):
        write_report(tmp_path / "out", examples.passing(), KEY)


def test_a_disk_that_fails_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write_report(tmp_path, examples.failing(), KEY)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left"):
        write_report(tmp_path, examples.passing(), KEY)

    assert open_report(tmp_path / "report.json", TRUSTED).digest == before.digest
    assert len(list(tmp_path.iterdir())) == 3


def test_attachments_are_copied_and_checked(tmp_path: Path) -> None:
    (tmp_path / "ifeval.json").write_text("{}")
    files = attach(tmp_path / "out", [tmp_path / "ifeval.json"])
    written = write_report(tmp_path / "out", replace(examples.passing(), attachments=files), KEY)
    copy = tmp_path / "out" / "attachments" / "ifeval.json"

    def verified() -> VerifiedReport:
        samples = tmp_path / "out" / "samples.jsonl"
        samples.write_bytes(b"".join(examples.sample_lines(ARMS)))
        return verify_report(written.path, trusted=TRUSTED, now=examples.WHEN, samples=samples)

    assert "attachment ifeval.json: as signed" in verified().checked
    copy.write_text("[]")
    with pytest.raises(ReportError, match="ifeval.json: is sha256"):
        verified()
    copy.unlink()
    assert "attachment ifeval.json: it is not here" in verified().unchecked


def test_an_attachment_that_cannot_be_carried_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    for files, message in (
        ([tmp_path / "a.json", tmp_path / "a.json"], "a.json already"),
        ([tmp_path], "cannot be copied"),
        ([tmp_path / "b.json"], "cannot be copied"),
    ):
        with pytest.raises(RunError, match=message):
            attach(tmp_path / "out", files)
