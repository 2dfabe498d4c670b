"""Signs a statement and writes it: `report.json` for machines, `report.html` and `report.md` for people.

`report.json` is written last, by rename: where it exists, the others show the same statement.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gates.artefact.durable import draft, sync
from gates.contracts.errors import RunError
from gates.report import dsse
from gates.report.labels import Texts
from gates.report.page import markdown, page
from gates.report.statement import Attachment, Statement, render
from gates.report.verify import ATTACHMENTS, open_report
from gates.suite.own import is_own

REPORT: Final = "report.json"
PAGE: Final = "report.html"
MARKDOWN: Final = "report.md"
MAX_ATTACHMENT_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report on disk. `digest` identifies it to `promote`; `statement_digest` is of what was signed."""

    path: Path
    digest: str
    statement_digest: str


def write_report(out_dir: Path, statement: Statement, key: Ed25519PrivateKey, texts: Texts) -> WrittenReport:
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
        _publish(out_dir, files)
    except OSError as error:
        raise RunError(f"{out_dir}: the report cannot be written there ({error.strerror or error})") from None
    return WrittenReport(out_dir / REPORT, opened.digest, digest)


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


def _publish(folder: Path, files: dict[str, bytes]) -> None:
    """Write all drafts to disk first, then rename each, in the given order."""
    drafts: dict[Path, Path] = {}
    try:
        for name, data in files.items():
            drafts[folder / name] = draft(folder / name, data, 0o644)
        for path, written in drafts.items():
            written.replace(path)
        sync(folder)
    finally:
        for written in drafts.values():
            written.unlink(missing_ok=True)
