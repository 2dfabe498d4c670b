"""A report is believed only whole: signed, fresh, a pass, and about what lies here."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.artefact.artefact import ModelIdentity, seal
from gates.contracts.errors import ReportError, RunError
from gates.contracts.verdict import ControlResult, Verdict
from gates.report import checks, dsse
from gates.report.files import VerifiedReport, attach, open_report, verify_report, write_report
from gates.report.statement import Pinned, Statement, render
from tests.gates.report import examples
from tests.gates.report.examples import CANDIDATE, KEY, OTHER_KEY, WHEN
from tests.scale import scaled

TRUSTED = {dsse.key_id(KEY.public_key()): KEY.public_key()}


def signed(statement: Statement, key: Any = KEY) -> bytes:
    return dsse.render(dsse.sign(render(statement), key))


def refusal(call: Callable[[], object]) -> ReportError:
    """The refusal that a call ends with; it is one line."""
    with pytest.raises(ReportError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return caught.value


def verified(report: bytes | Path, **more: Any) -> Any:
    return verify_report(report, trusted=TRUSTED, now=WHEN + timedelta(days=2), **more)


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """The samples.jsonl of the passing report."""
    cases = examples.all_cases
    arms = {"candidate": cases(examples.CANDIDATE_FEW), "baseline": cases(examples.BASELINE_FEW)}
    path = tmp_path / "samples.jsonl"
    path.write_bytes(b"".join(examples.sample_lines(arms)))
    return path


def sealed(folder: Path, statement: Statement) -> Statement:
    """A small sealed artefact, and the statement made to be about it."""
    folder.mkdir()
    (folder / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    root = seal(folder, name="annie", format="gguf-f16", created=WHEN).root
    return replace(
        statement, candidate=replace(statement.candidate, model=replace(statement.candidate.model, root=root))
    )


# ---------------------------------------------------------------------------------------- genuine


def test_a_genuine_report_is_taken_with_all_that_was_asked(tmp_path: Path, samples: Path) -> None:
    data = (Pinned("train.jsonl", None, f"sha256:{'7' * 64}"),)
    statement = replace(sealed(tmp_path / "annie", examples.passing()), data=data)
    found = verified(signed(statement), samples=samples, artefact=tmp_path / "annie")

    assert found.statement == statement
    assert [line.partition(":")[0] for line in found.unchecked] == ["suite", "policy"]
    assert any("2,390" in line for line in found.checked)


# ------------------------------------------------------------------------------------------ signed


def test_a_report_that_is_not_there_is_missing(tmp_path: Path) -> None:
    assert refusal(lambda: verified(tmp_path / "report.json")).code == "report_missing"
    assert refusal(lambda: verified(tmp_path)).code == "report_missing"


STATED = render(examples.passing())


def test_what_no_trusted_key_signed_is_refused() -> None:
    error = refusal(lambda: verified(dsse.render(dsse.sign(STATED, OTHER_KEY))))

    assert error.code == "report_signature" and "not trusted" in str(error)


SHORT = signed(replace(examples.passing(), samples=replace(examples.passing().samples, lines=())))


@settings(max_examples=scaled(70, 200))
@given(place=st.integers(0, len(SHORT) - 1), mask=st.integers(1, 255))
def test_a_report_with_any_byte_changed_is_rejected(place: int, mask: int) -> None:
    changed = bytearray(SHORT)
    changed[place] ^= mask

    assert refusal(lambda: verified(bytes(changed))).code == "report_signature"


# ------------------------------------------------------------------------------------------- fresh


def aged(days: float, limit: float | None, **changes: Any) -> ReportError | None:
    try:
        checks.age(replace(examples.passing(), **changes), WHEN + timedelta(days=days), limit)
    except ReportError as error:
        return error
    return None


@pytest.mark.parametrize(
    "days, limit, expires, stale",
    [
        (6.9, 7, None, False),
        (7.0, 7, None, False),
        (7.1, 7, None, True),
        (400, None, None, False),
        (0.5, 0, None, True),
        (6, 7, "2026-11-28T09:30:15Z", False),
        (7.1, 30, "2026-11-28T09:30:15Z", True),
        (-0.001, 7, None, False),  # a minute and a half: clocks differ
        (-0.1, 7, None, True),
    ],
)
def test_a_report_has_an_age(days: float, limit: float | None, expires: str | None, stale: bool) -> None:
    error = aged(days, limit, expires=expires)

    assert (error is not None) is stale
    assert error is None or error.code == "report_stale"


# -------------------------------------------------------------------------------------------- pass


def judged(**changes: Any) -> ReportError:
    decision = replace(examples.passing().decision, **changes)
    return refusal(lambda: checks.verdict(replace(examples.passing(), decision=decision)))


def test_only_a_pass_is_a_pass() -> None:
    for example in (examples.failing(), examples.inconclusive()):
        error = refusal(lambda example=example: checks.verdict(example))  # type: ignore[misc]
        assert error.code == "verdict_not_pass"
        assert example.decision.reasons[0] in str(error)


def test_a_pass_must_rest_on_gates_and_controls_that_passed() -> None:
    gates = examples.passing().decision.gates
    advisory = tuple(g for g in gates if g.tier == "advisory")
    failed = ControlResult("thinking on", Verdict.FAIL, Verdict.PASS, (), "")

    assert "no gate" in str(judged(gates=advisory))
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        assert "leak" in str(judged(gates=(replace(gates[0], verdict=verdict), *gates[1:])))
    assert "thinking on" in str(judged(controls=(failed,)))


# --------------------------------------------------------------------------------------- of what


def test_a_report_of_another_artefact_is_refused(tmp_path: Path) -> None:
    sealed(tmp_path / "annie", examples.passing())
    error = refusal(lambda: verified(signed(examples.passing()), artefact=tmp_path / "annie"))

    assert error.code == "mismatch_artefact"
    assert "the report is of artefact" in str(error)


def test_an_artefact_changed_after_the_report_is_refused_by_its_file(tmp_path: Path) -> None:
    statement = sealed(tmp_path / "annie", examples.passing())
    (tmp_path / "annie" / "model.gguf").write_bytes(b"GGUF" + bytes(99) + b"!")
    error = refusal(lambda: verified(signed(statement), artefact=tmp_path / "annie"))

    assert error.code == "mismatch_artefact"
    assert "changed: model.gguf" in str(error)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"driver": "url"}, "driver was 'docker'"),
        (
            {"argv": ("--quantization", "fp8", *examples.ARGV[2:])},
            "argv was 'modelopt' in the report and is 'fp8' here",
        ),
        ({"argv": examples.ARGV[:-2]}, "argv was '--reasoning-parser' in the report and is None here"),
        ({"build": "vLLM 0.26.0"}, "build was 'vLLM 0.25.1' in the report and is 'vLLM 0.26.0' here"),
    ],
)
def test_another_engine_is_a_mismatch_that_names_what_differs(change: dict[str, Any], message: str) -> None:
    error = refusal(lambda: checks.engine(examples.passing(), replace(CANDIDATE.engine, **change)))
    assert error.code == "mismatch_engine" and message in str(error)


def test_a_baseline_of_another_source_is_refused_unless_the_checkpoint_in_between_is_stated() -> None:
    stranger = examples.sha("stranger")
    ours = replace(CANDIDATE.model, parents={"source": stranger})
    statement = replace(examples.passing(), candidate=replace(CANDIDATE, model=ours))
    between = ModelIdentity("recovered", "hf-bf16", stranger, ours.base_model, {"base": examples.SOURCE})

    assert refusal(lambda: checks.lineage(statement)).code == "baseline_lineage"
    checks.lineage(examples.passing())
    checks.lineage(replace(statement, ancestors=(between,)))


# ----------------------------------------------------------------------------------------- samples


CHANGES: list[tuple[Callable[[list[bytes]], list[bytes]], str]] = [
    (lambda lines: lines[:4] + lines[5:], "missing or altered: leak-004 (candidate)"),
    (lambda lines: [*lines[:4], lines[4].replace(b'"status":200', b'"status":201'), *lines[5:]], "line 5 is not the report's; missing or altered: leak-004 (candidate)"),
    (lambda lines: [*lines, lines[4].replace(b'"id":"', b'"id":"0')], "line 2391"),
    (lambda lines: [*lines, lines[4]], "line 2391"),
    (lambda lines: [lines[1], lines[0], *lines[2:]], "another order"),
    (lambda lines: [*lines, b'{"id":'], "line 2391"),
    (lambda lines: [], "and 2387 more"),
]  # fmt: skip


@pytest.mark.parametrize("change, message", CHANGES)
def test_samples_that_are_not_the_reports_are_named(
    change: Callable[[list[bytes]], list[bytes]], message: str, samples: Path
) -> None:
    samples.write_bytes(b"".join(change(samples.read_bytes().splitlines(keepends=True))))
    error = refusal(lambda: verified(signed(examples.passing()), samples=samples))

    assert error.code == "report_signature" and message in str(error)


ARMS = {
    "candidate": examples.all_cases(examples.CANDIDATE_FEW),
    "baseline": examples.all_cases(examples.BASELINE_FEW),
}


def test_a_report_is_three_files_that_show_one_statement(tmp_path: Path) -> None:
    written = write_report(tmp_path / "out", examples.passing(), KEY, examples.SAID)
    opened = open_report(tmp_path / "out" / "report.json", TRUSTED)

    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.html", "report.json", "report.md"]
    assert (opened.statement, opened.digest) == (examples.passing(), written.digest)
    for name in ("report.html", "report.md"):
        assert written.statement_digest in (tmp_path / "out" / name).read_text("utf-8")


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(RunError, match="cannot be written there"):
        write_report(tmp_path / "out", examples.passing(), KEY, {})


def test_attachments_are_copied_and_checked(tmp_path: Path) -> None:
    (tmp_path / "ifeval.json").write_text("{}")
    files = attach(tmp_path / "out", [tmp_path / "ifeval.json"])
    write_report(tmp_path / "out", replace(examples.passing(), attachments=files), KEY, {})
    copy = tmp_path / "out" / "attachments" / "ifeval.json"

    def verified() -> VerifiedReport:
        samples = tmp_path / "out" / "samples.jsonl"
        samples.write_bytes(b"".join(examples.sample_lines(ARMS)))
        return verify_report(
            tmp_path / "out" / "report.json", trusted=TRUSTED, now=examples.WHEN, samples=samples
        )

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
