"""Reports that were uploaded: their bytes in the state folder, what they say in the registry.

Anything that reads as a report is taken; who signed it is asked when somebody wants to promote on it.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from app.errors.tree import RequestError, UnknownThing
from app.registry.registry import Registry
from app.registry.store import translated_files
from app.registry.values import Entry, KnownReport
from gates.report import document, dsse
from gates.report.codec import CodecError
from gates.report.verify import MAX_REPORT_BYTES

FOLDER = "reports"
"""In the state folder; each report is there under the digest of its bytes."""


class BadReport(RequestError):
    """What was uploaded is no report."""

    code = "report_malformed"


def read(data: bytes) -> KnownReport:
    """What a report says of itself; its signature is not looked at. Raises BadReport."""
    try:
        envelope = dsse.parse(data)
        statement = document.parse(envelope.payload)
    except CodecError as error:
        raise BadReport(f"this is no report.json of a gate: {error}") from None
    found = hashlib.sha256(data).hexdigest()
    return KnownReport(
        digest=f"sha256:{found}",
        statement=f"sha256:{hashlib.sha256(envelope.payload).hexdigest()}",
        artefact=statement.candidate.model.root,
        suite=statement.suite.digest,
        policy=statement.policy.digest,
        baseline=statement.baseline.model.root,
        verdict=str(statement.verdict),
        created=statement.created,
        path=f"{FOLDER}/{found}.json",
    )


def keep(registry: Registry, state_dir: Path, report: KnownReport, data: bytes, entry: Entry) -> bool:
    """The file first, then the row: a row never names a file that is not there. Whether it is new.

    Raises StorageFailed.
    """
    path = state_dir / report.path
    if registry.report(report.digest) is not None and path.is_file():
        return False
    with translated_files():
        _write(path, data)
    registry.add_report(report, entry)
    return True


def bytes_of(state_dir: Path, report: KnownReport | None) -> bytes:
    """The report as it was uploaded. Raises UnknownThing, StorageFailed."""
    if report is not None:
        with translated_files():
            try:
                return (state_dir / report.path).read_bytes()
            except FileNotFoundError:
                pass
    raise UnknownThing("there is no such report here; upload it to /admin/reports", "report_not_found")


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, and on the disk."""
    assert len(data) <= MAX_REPORT_BYTES
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=".draft.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):  # the folder may be gone
            os.unlink(draft)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
