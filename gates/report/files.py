"""Reports on disk. A statement is signed and written: `report.json` for machines, `report.html` and `report.md` for people; it is verified
to be genuine and about the files that are here, and checks that were not made are listed, too.

`report.json` is written last, by rename: where it exists, the others show the same statement.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gates.artefact import artefact as artefacts
from gates.artefact.durable import draft, sync
from gates.contracts.errors import ManifestError, ReportError, RunError
from gates.decode.decoder import DecodeError
from gates.report import checks, dsse
from gates.report.labels import Texts
from gates.report.page import markdown, page
from gates.report.statement import Attachment, Statement, parse, render
from gates.suite.own import is_own

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


REPORT: Final = "report.json"
PAGE: Final = "report.html"
MARKDOWN: Final = "report.md"
MAX_ATTACHMENT_BYTES: Final = 64 * 2**20


def write_report(out_dir: Path, statement: Statement, key: Ed25519PrivateKey, texts: Texts) -> VerifiedReport:
    """Sign and write the three files into `out_dir`. Raises RunError: they cannot be written there; DecodeError: NaN, a bug."""
    data = dsse.render(dsse.sign(render(statement), key))
    public = key.public_key()
    opened = open_report(data, {dsse.key_id(public): public})  # check that what will be written can be read
    digest = opened.statement_digest
    shown = page(statement, texts, statement_digest=digest, signers=opened.signers)
    short = markdown(statement, texts, statement_digest=digest)
    files = {PAGE: shown.encode(), MARKDOWN: short.encode(), REPORT: data}
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        drafts = [(draft(out_dir / name, data, 0o644), out_dir / name) for name, data in files.items()]
        for written, path in drafts:
            written.replace(path)
        sync(out_dir)
    except OSError as error:
        raise RunError(f"{out_dir}: the report cannot be written there ({error.strerror or error})") from None
    return opened


def attach(out_dir: Path, files: Iterable[Path]) -> tuple[Attachment, ...]:
    """Copy result files of other benchmarks beside the report. Raises RunError: one cannot be read, or a name is used twice."""
    attached: dict[str, Attachment] = {}
    for path in files:
        try:
            if path.stat().st_size > MAX_ATTACHMENT_BYTES:
                raise RunError(f"--attach {path}: larger than {MAX_ATTACHMENT_BYTES >> 20} MiB")
            data = path.read_bytes()
            (out_dir / ATTACHMENTS).mkdir(parents=True, exist_ok=True)
            (out_dir / ATTACHMENTS / path.name).write_bytes(data)
        except OSError as error:
            raise RunError(f"--attach {path}: cannot be copied ({error.strerror})") from None
        if path.name in attached:
            raise RunError(f"--attach {path}: there is a {path.name} already; rename one of them")
        attached[path.name] = Attachment(path.name, f"sha256:{hashlib.sha256(data).hexdigest()}")
    return tuple(attached.values())


def suite_asked(out_dir: Path, statement: Statement) -> str | Path:
    """The suite that the report in a folder names: the copy of its file there, or else its name."""
    files = (out_dir / ATTACHMENTS / file.name for file in statement.attachments if is_own(file.name))
    return next((path for path in files if path.stem == statement.suite.name), statement.suite.name)
