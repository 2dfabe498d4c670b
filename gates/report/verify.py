"""Verifies that a report is genuine and about the files that are here; checks that were not made are listed, too."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gates.artefact import artefact as artefacts
from gates.contracts.errors import ManifestError, ReportError
from gates.decode.decoder import DecodeError
from gates.report import checks, dsse
from gates.report.statement import Attachment, Statement, parse

MAX_REPORT_BYTES: Final = 64 * 2**20
"""A report of 3,000 samples has about 1 MB."""
ATTACHMENTS: Final = "attachments"
"""The folder of attached files, beside the report."""


@dataclass(frozen=True, slots=True)
class VerifiedReport:
    """A genuine report. `digest` is of the envelope's bytes (what `promote` calls `report`), `statement_digest` of the signed
    payload, which another signature does not change. `checked` and `unchecked` are lines for display.
    """

    statement: Statement
    digest: str
    statement_digest: str
    signers: tuple[str, ...]
    checked: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def open_report(report: Path | bytes, trusted: Mapping[str, Ed25519PublicKey] | None) -> VerifiedReport:
    """Read a report, and verify its signature unless `trusted` is None. Raises ReportError: report_missing or report_signature."""
    data = report if isinstance(report, bytes) else read_bounded(report)
    try:
        envelope = dsse.parse(data)
        signers = () if trusted is None else (dsse.signer(envelope, trusted),)
        statement = parse(envelope.payload)
    except DecodeError as error:
        raise ReportError("report_signature", str(error)) from None
    digest, payload_digest = (
        f"sha256:{hashlib.sha256(data).hexdigest()}" for data in (data, envelope.payload)
    )
    return VerifiedReport(statement, digest, payload_digest, signers)


def verify_report(
    report: Path | bytes,
    *,
    trusted: Mapping[str, Ed25519PublicKey],
    now: datetime,
    samples: Path | None = None,
    artefact: Path | None = None,
) -> VerifiedReport:
    """Verify that a report, pass or not, is signed by a trusted key and about what is given here: the samples.jsonl beside it, and a
    folder whose every file is hashed again. Raises ReportError, of the first failure.
    """
    opened = open_report(report, trusted)
    statement, unasked = opened.statement, list[str]()
    yes = [f"signature: by {', '.join(opened.signers)}"]
    yes.append(f"age: {checks.age(statement, now, None).days} days")
    yes.append(f"verdict: {statement.verdict}")
    checks.lineage(statement)
    yes.append("baseline: of the same model")
    if statement.data:
        yes.append(f"training data: the suite is in none of {len(statement.data)} files")
    else:
        unasked.append("training data: the suite was compared with no file")
    unasked += [f"{name}: whether it is the one in force" for name in ("suite", "policy")]
    if samples is None:
        unasked.append("samples: no samples.jsonl was given")
    else:
        yes.append(f"samples: all {_check_samples(statement, samples):,} as signed")
    for file in statement.attachments:
        there = samples is not None and _check_attachment(file, samples.parent / ATTACHMENTS / file.name)
        (yes if there else unasked).append(
            f"attachment {file.name}: {'as signed' if there else 'it is not here'}"
        )
    if artefact is None:
        unasked.append("artefact: no folder was given")
    else:
        yes.append(f"artefact: {_check_artefact(statement, artefact)}, every byte")
    return replace(opened, checked=tuple(yes), unchecked=tuple(unasked))


def read_bounded(path: Path) -> bytes:
    """A report's file. Raises ReportError: it cannot be read, or is too large to be a report."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_REPORT_BYTES + 1)
    except OSError as error:
        raise ReportError("report_missing", f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_REPORT_BYTES:
        raise ReportError("report_signature", f"{path}: larger than {MAX_REPORT_BYTES} bytes")
    return data


def _check_samples(statement: Statement, path: Path) -> int:
    try:
        with path.open("rb") as file:
            return checks.samples(statement.samples, file)
    except OSError as error:
        raise ReportError(
            "report_signature", f"{path}: the samples cannot be read ({error.strerror})"
        ) from None


def _check_attachment(file: Attachment, path: Path) -> bool:
    """Whether the file is there; then it is the one that was attached."""
    if not path.is_file():
        return False
    if (found := f"sha256:{artefacts.hash_file(path)[1]}") != file.digest:
        raise ReportError("report_signature", f"{path}: is {found:.19}, and the report has {file.digest:.19}")
    return True


def _check_artefact(statement: Statement, path: Path) -> str:
    """The folder's root digest, after every file in it was hashed."""
    folder = artefacts.folder_of(path)
    try:
        root = artefacts.load(folder).root
        checks.artefact(statement, root)
        problems = artefacts.verify(folder)
    except (ManifestError, OSError) as error:
        raise ReportError("mismatch_artefact", str(error)) from None
    if problems:
        raise ReportError(
            "mismatch_artefact", f"{folder} is not what its manifest says: {checks.first_few(problems)}"
        )
    return root
