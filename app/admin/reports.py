"""Uploaded reports: their bytes are kept in the state folder, their summary in the registry.

Every well-formed report is accepted; its signature is verified when it is used for a promotion.
"""

from pathlib import Path
from typing import Final

from app.errors.tree import RequestError, UnknownThing
from app.proxy.admission import ThreadQueue
from app.registry.registry import Registry
from app.registry.store import translated
from app.registry.values import AuditEntry, KnownReport
from gates.artefact.durable import draft, sync
from gates.contracts.errors import KeyFileError, ReportError
from gates.report.keys import trusted
from gates.report.verify import VerifiedReport, open_report

MOST_WAITING: Final = 16
"""Requests that may wait for the thread. A report takes half a second, one of 64 MiB some ten seconds."""
PATIENCE_SECONDS: Final = 30.0
FOLDER = "reports"
"""In the state folder; each report is a file named by the digest of its bytes."""


class BadReport(RequestError):
    """The upload is not a report."""

    code = "report_malformed"


def report_thread() -> ThreadQueue:
    """Reads reports, one at a time, however many operators ask."""
    return ThreadQueue(1, MOST_WAITING, "read")


def read(data: bytes, keys: Path) -> VerifiedReport:
    """A report, with those of the trusted `keys` that have signed it, possibly none. Raises BadReport."""
    try:
        return open_report(data, trusted([keys]))
    except (ReportError, KeyFileError):
        pass
    try:
        return open_report(data, None)
    except ReportError as error:
        raise BadReport(f"this is no report.json of a gate: {error}") from None


def known(found: VerifiedReport) -> KnownReport:
    """The registry's record of a verified report."""
    statement = found.statement
    return KnownReport(
        digest=found.digest,
        statement=found.statement_digest,
        artefact=statement.candidate.model.root,
        suite=statement.suite.digest,
        policy=statement.policy.digest,
        baseline=statement.baseline.model.root,
        verdict=str(statement.verdict),
        created=statement.created,
        path=f"{FOLDER}/{found.digest.removeprefix('sha256:')}.json",
    )


def keep(registry: Registry, state_dir: Path, report: KnownReport, data: bytes, entry: AuditEntry) -> bool:
    """Store a report; whether it is new. The file comes first, so that no row names a missing file.

    Raises StorageFailed.
    """
    path = state_dir / report.path
    if registry.find(KnownReport, digest=report.digest) is not None and path.is_file():
        return False
    with translated():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft(path, data, 0o600).replace(path)
        sync(path.parent)
    registry.add(report, entry)
    return True


def bytes_of(state_dir: Path, report: KnownReport | None) -> bytes:
    """The report as it was uploaded. Raises UnknownThing, StorageFailed."""
    if report is not None:
        with translated():
            try:
                return (state_dir / report.path).read_bytes()
            except FileNotFoundError:
                pass
    raise UnknownThing("there is no such report here; upload it to /admin/reports", "report_not_found")
