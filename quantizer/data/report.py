"""The report of `manners data validate`, for a person and for a script. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from quantizer.data.validate import Report

SHOWN: Final = 20
"""Findings that a person is shown; the JSON has all of them."""
SPAN: Final = (64, 2048)
"""Tokens that conversations for calibration should cover."""


def lines(report: Report) -> Iterator[str]:
    """What a person wants to know."""
    yield f"{report.file}: {report.rows} rows, {report.digest}"
    spoken = ", ".join(f"{name} {_share(n, report.rows)}" for name, n in sorted(report.languages.items()))
    yield f"  languages          {spoken or 'nothing to read'}"
    yield f"  with calls         {report.with_calls} ({_share(report.with_calls, report.rows)})"
    yield f"  with thoughts      {report.thinking} ({_share(report.thinking, report.rows)})"
    if report.seconds:
        yield f"  spoken seconds     {_spread(report.seconds, '.1f')} of {len(report.seconds)} answers"
    yield f"  tokens             {_tokens(report)}"
    yield f"  clear of suites    {_clear(report)}"
    by_code = Counter(found.code for found in report.findings)
    yield "  found              " + (
        ", ".join(f"{n} {code}" for code, n in by_code.most_common()) or "nothing"
    )
    yield from (f"  line {found}" for found in report.findings[:SHOWN])
    if len(report.findings) > SHOWN:
        yield f"  and {len(report.findings) - SHOWN} more; --json has all"
    yield "not fit" if report.findings else "fit"


def plain(report: Report) -> dict[str, Any]:
    """The same for a script."""
    tokens = report.tokens
    return {
        "file": report.file,
        "digest": report.digest,
        "fit": not report.findings,
        "rows": report.rows,
        "with_calls": report.with_calls,
        "with_thoughts": report.thinking,
        "languages": {n: round(c / report.rows, 4) for n, c in sorted(report.languages.items())},
        "spoken_seconds": _quantiles(report.seconds),
        "tokens": None if tokens is None else _quantiles(tokens) | {"learned": report.learned},
        "suites": report.suites,
        "counts": dict(Counter(found.code for found in report.findings).most_common()),
        "findings": [
            {"line": found.line, "place": found.place, "code": found.code, "detail": found.detail}
            for found in report.findings
        ],
    }


def _tokens(report: Report) -> str:
    if report.tokens is None:
        return "not rendered: name a model folder with --source"
    if not report.tokens:
        return "no row could be rendered"
    low, high = SPAN
    within = sum(low <= tokens <= high for tokens in report.tokens)
    whole = sum(report.tokens)
    return (
        f"{_spread(report.tokens, 'd')}; {_share(within, len(report.tokens))} from {low} to {high}; "
        f"{_share(report.learned, whole)} of {whole:,} are the assistant's"
    )


def _clear(report: Report) -> str:
    hit = {found.detail.partition(":")[0] for found in report.findings if found.code == "wall"}
    return ", ".join(f"{name} {'NO' if name in hit else 'yes'}" for name in report.suites) or "none was named"


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    order = sorted(values)
    places = {"least": 0.0, "p50": 0.5, "p95": 0.95, "most": 1.0}
    return {name: round(order[round(share * (len(order) - 1))], 2) for name, share in places.items()}


def _spread(values: Sequence[float], form: str) -> str:
    found = _quantiles(values)
    low, middle, late, high = (format(int(v) if form == "d" else v, form) for v in found.values())
    return f"{low} to {high}, half below {middle}, 95 % below {late}"


def _share(count: int, of: int) -> str:
    return f"{count / of:.0%}" if of else "0%"
