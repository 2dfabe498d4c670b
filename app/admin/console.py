"""The operators' web console: static files on the admin listener, and reports as it displays them.

The page itself holds no data of this gateway, so it needs no token; every request that it makes does.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Request
from markdown_it import MarkdownIt
from starlette.responses import Response

from app.admin.reports import Reports
from app.http.replies import reply, reply_headers
from gates.judge.formatting import title
from gates.report import labels
from gates.report.files import VerifiedReport
from gates.report.statement import Statement

STATIC: Final = Path(__file__).parent / "static"
FILES: Final = {
    "/admin/ui": ("console.html", "text/html"),
    "/admin/ui/console.css": ("console.css", "text/css"),
    "/admin/ui/console.js": ("console.js", "text/javascript"),
    "/admin/runbook": ("runbook.md", "text/html"),  # where alerts link to: the runbook of this very version
}
"""The exact paths that need no token, each with its file and media type."""

HEADERS: Final = {  # no inline script or style, nothing from other origins, no framing, and no script from strings
    "content-security-policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def console_router(reports: Reports) -> APIRouter:
    routes = APIRouter()
    for path in FILES:
        routes.add_api_route(path, _file, methods=["GET"], include_in_schema=False)

    @routes.get("/admin/reports/{digest}/reading")
    async def read(request: Request, digest: str) -> Response:
        return reply(request, await reports.show(digest, lambda data: reading(reports.read(data))))

    return routes


async def _file(request: Request) -> Response:
    name, kind = FILES[request.url.path]
    return Response(_content(name), headers={**reply_headers(request), **HEADERS}, media_type=kind)


@cache
def _content(name: str) -> bytes:
    """A file; of the runbook a page with an anchor at every section, and without links to other pages of the repository."""
    text = (STATIC / name).read_text("utf-8")
    if name.endswith(".md"):
        text = re.sub(r"\[([^]]+)\]\((?!#|http)[^)]*\)", r"\1", text)
        body = re.sub(
            r"<(h[1-6])>(.*?)</h",
            lambda m: f'<{m[1]} id="{re.sub("[^a-z0-9 -]", "", m[2].lower()).replace(" ", "-")}">{m[2]}</h',
            MarkdownIt().render(text),
        )
        text = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Runbook</title><body>{body}</body></html>'
    return text.encode()


def reading(report: VerifiedReport) -> dict[str, Any]:
    """A summary of a report."""
    statement = report.statement
    arms = {"candidate": statement.candidate, "baseline": statement.baseline}
    return {
        "trusted": bool(report.signers),
        "verdict": str(statement.verdict.value),
        "headline": labels.headline(statement),
        "reasons": [f"{gate}: {why}" if gate else why for gate, why in labels.reasons(statement)],
        "created": statement.created,
        **{
            side: {"model": arm.model.name, "format": arm.model.format, "engine": arm.engine.name}
            for side, arm in arms.items()
        },
        "suite": statement.suite.name,
        "policy": statement.policy.name,
        "gates": [_gate(statement, name) for name in labels.gate_names(statement)],
    }


def _gate(statement: Statement, name: str) -> dict[str, Any]:
    verdict, decides = labels.gate_verdict(statement, name)
    cells = zip(("candidate", "baseline", "required"), labels.overview_cells(statement, name), strict=True)
    return {"title": title(name), "verdict": str(verdict.value), "decides": decides, **dict(cells)}
