"""The operators' web console: static files on the admin listener, and reports as it displays them.

The page itself holds no data of this gateway, so it needs no token; every request that it makes does.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request
from markdown_it import MarkdownIt
from starlette.responses import Response

from app.admin import reports
from app.config.config import Config
from app.http.replies import reply, reply_headers
from app.promotion.facts import KEYS
from app.promotion.service import PromotionService
from app.proxy.admission import ThreadQueue
from app.registry.values import KnownReport
from gates.judge.formatting import title
from gates.report import labels
from gates.report.page import page
from gates.report.statement import ComparedArm, Statement
from gates.report.verify import VerifiedReport

T = TypeVar("T")

STATIC: Final = Path(__file__).parent / "static"
FILES: Final = {
    "/admin/ui": ("console.html", "text/html"),
    "/admin/ui/console.css": ("console.css", "text/css"),
    "/admin/ui/console.js": ("console.js", "text/javascript"),
}
RUNBOOK: Final = "/admin/runbook"
"""Where alerts link to: the runbook of this very version."""
OPEN: Final = frozenset({*FILES, RUNBOOK})
"""The exact paths that need no token."""

POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'"
)
"""No inline script or style, nothing from other origins, no framing, and no script from strings."""
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}

SANDBOX: Final = {"content-security-policy": "sandbox", "x-content-type-options": "nosniff"}
"""A report is untrusted: if a browser opens it from here, it is treated as a page without an origin."""


def console_router(config: Config, promotions: PromotionService, reader: ThreadQueue) -> APIRouter:
    routes = APIRouter()
    for path in FILES:
        routes.add_api_route(path, _file, methods=["GET"], include_in_schema=False)

    routes.add_api_route(RUNBOOK, _runbook, methods=["GET"], include_in_schema=False)

    async def shown(digest: str, show: Callable[[VerifiedReport], T]) -> T:
        """`show` of a report, in the reports' thread."""
        row = await promotions.do(lambda registry: registry.find(KnownReport, digest=digest))
        state = config.state_dir

        def work() -> T:
            return show(reports.read(reports.bytes_of(state, row), state / KEYS))

        with promotions.reporting_state():
            return await reader.do(work, reports.PATIENCE_SECONDS)

    @routes.get("/admin/reports/{digest}/reading")
    async def read(request: Request, digest: str) -> Response:
        found = await shown(digest, lambda opened: reading(opened.statement, digest, opened.signers))
        return reply(request, found)

    @routes.get("/admin/reports/{digest}/page", response_class=Response)
    async def whole(request: Request, digest: str) -> Response:
        text = await shown(
            digest,
            lambda opened: page(
                opened.statement, statement_digest=opened.statement_digest, signers=opened.signers
            ),
        )
        return Response(text, headers={**reply_headers(request), **SANDBOX}, media_type="text/html")

    return routes


async def _file(request: Request) -> Response:
    name, kind = FILES[request.url.path]
    named = {**reply_headers(request), **HEADERS}
    return Response(_bytes(name), headers=named, media_type=kind)


async def _runbook(request: Request) -> Response:
    return Response(_rendered(), headers={**reply_headers(request), **HEADERS}, media_type="text/html")


@cache
def _rendered() -> str:
    """docs/runbook.md with an anchor at every section, and without links to other pages of the repository."""
    text = re.sub(r"\[([^]]+)\]\((?!#|http)[^)]*\)", r"\1", _bytes("runbook.md").decode())
    body = re.sub(
        r"<(h[1-6])>(.*?)</h",
        lambda m: f'<{m[1]} id="{re.sub("[^a-z0-9 -]", "", m[2].lower()).replace(" ", "-")}">{m[2]}</h',
        MarkdownIt().render(text),
    )
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Runbook</title><body>{body}</body></html>'


@cache
def _bytes(name: str) -> bytes:
    return (STATIC / name).read_bytes()


def reading(statement: Statement, digest: str, signers: tuple[str, ...]) -> dict[str, Any]:
    """A summary of a report. `signers` are the ids of trusted keys that have signed it, possibly none."""
    return {
        "digest": digest,
        "trusted": bool(signers),
        "signers": list(signers),
        "verdict": str(statement.verdict.value),
        "headline": labels.headline(statement),
        "reasons": [f"{gate}: {why}" if gate else why for gate, why in labels.reasons(statement)],
        "created": statement.created,
        "expires": statement.expires,
        "candidate": _arm(statement.candidate),
        "baseline": _arm(statement.baseline),
        "suite": statement.suite.name,
        "policy": statement.policy.name,
        "gates": [_gate(statement, name) for name in labels.gate_names(statement)],
    }


def _arm(arm: ComparedArm) -> dict[str, str]:
    return {"model": arm.model.name, "format": arm.model.format, "engine": arm.engine.name}


def _gate(statement: Statement, name: str) -> dict[str, Any]:
    verdict, decides = labels.gate_verdict(statement, name)
    candidate, baseline, required = labels.overview_cells(statement, name)
    return {
        "title": title(name),
        "verdict": str(verdict.value),
        "decides": decides,
        "candidate": candidate,
        "baseline": baseline,
        "required": required,
    }
