"""Uploaded reports: their bytes are kept in the state folder, their summary in the registry.

Every well-formed report is accepted; its signature is verified when it is used for a promotion.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from app.errors.tree import RequestError, UnknownThing
from app.promotion.facts import KEYS
from app.promotion.repository import now
from app.promotion.service import PromotionService
from app.proxy.admission import ThreadQueue
from app.registry.registry import Registry
from app.registry.store import translated
from app.registry.values import AuditEntry, KnownReport
from gates.artefact.durable import draft, sync
from gates.contracts.errors import KeyFileError, ReportError
from gates.report.files import VerifiedReport, open_report
from gates.report.keys import trusted

MOST_WAITING: Final = 16
"""Requests that may wait for the thread. A report takes half a second, one of 64 MiB some ten seconds."""
PATIENCE_SECONDS: Final = 30.0

T = TypeVar("T")


class Reports:
    """Keeps and reads reports, one at a time in a thread of its own, however many operators ask."""

    def __init__(self, state: Path, promotions: PromotionService) -> None:
        self._state, self._promotions = state, promotions
        self._reader = ThreadQueue(1, MOST_WAITING)

    async def keep(self, data: bytes, actor: str) -> tuple[dict[str, Any], bool]:
        """Store a report; what it is, and whether it is new. Raises RequestError (report_malformed), StorageFailed."""
        found = await self._reader.do(partial(self.read, data), PATIENCE_SECONDS)
        statement, digest = found.statement, found.digest
        report = KnownReport(
            digest=digest,
            statement=found.statement_digest,
            artefact=statement.candidate.model.root,
            suite=statement.suite.digest,
            policy=statement.policy.digest,
            baseline=statement.baseline.model.root,
            verdict=str(statement.verdict),
            created=statement.created,
            path=f"reports/{digest.removeprefix('sha256:')}.json",
        )
        detail = {"digest": digest, "artefact": report.artefact, "verdict": report.verdict}
        entry = AuditEntry(at=now(), actor=actor, verb="report.uploaded", subject=digest, detail=detail)
        path = self._state / report.path
        new = await self._promotions.do(partial(_keep, path=path, report=report, data=data, entry=entry))
        return {"digest": digest, "verdict": report.verdict, "trusted": bool(found.signers)}, new

    async def listed(self) -> tuple[KnownReport, ...]:
        """All reports, oldest first."""
        return await self._promotions.do(lambda registry: registry.all(KnownReport))

    async def show(self, digest: str, show: Callable[[bytes], T]) -> T:
        """`show` of the report as it was uploaded. Raises UnknownThing, StorageFailed."""
        row = await self._promotions.do(lambda registry: registry.find(KnownReport, digest=digest))
        with self._promotions.reporting_state():
            return await self._reader.do(lambda: show(_bytes_of(self._state, row)), PATIENCE_SECONDS)

    def read(self, data: bytes) -> VerifiedReport:
        """A report, with those of this gateway's trusted keys that have signed it, possibly none. Raises RequestError."""
        with suppress(ReportError, KeyFileError):
            return open_report(data, trusted([self._state / KEYS]))
        try:
            return open_report(data, None)
        except ReportError as error:
            raise RequestError(f"this is no report.json of a gate: {error}", "report_malformed") from None


def _keep(registry: Registry, path: Path, report: KnownReport, data: bytes, entry: AuditEntry) -> bool:
    """The file comes first, so that no row names a missing file."""
    if registry.find(KnownReport, digest=report.digest) is not None and path.is_file():
        return False
    with translated():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft(path, data, 0o600).replace(path)
        sync(path.parent)
    registry.add(report, entry)
    return True


def _bytes_of(state: Path, report: KnownReport | None) -> bytes:
    if report is not None:
        with translated(), suppress(FileNotFoundError):
            return (state / report.path).read_bytes()
    raise UnknownThing("there is no such report here; upload it to /admin/reports", "report_not_found")
