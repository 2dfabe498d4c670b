"""`manners shadow`: replay recorded requests on a candidate and on the live engine, and compare the replies.

The gateway records the requests (`[shadow]` of the configuration). The comparison is advisory.
"""

import argparse
import asyncio
import json
from dataclasses import asdict
from datetime import UTC, datetime
from os import EX_NOINPUT

from rich.markup import escape

from app.cli import terminal
from app.cli.exit_codes import CommandError
from app.config.config import load
from app.shadow.compare import Comparison
from app.shadow.replay import NothingRecorded, ReplayRequest, replay
from gates.run.progress import Display


def run(args: argparse.Namespace) -> int:
    """Replay, compare and print. The exit code does not depend on what the comparison finds."""
    wanted = ReplayRequest(
        candidate=args.candidate, against=args.against, model=args.model, days=args.days, limit=args.limit
    )

    try:
        found = asyncio.run(replay(load(args.config), wanted, datetime.now(UTC), Display))
    except NothingRecorded as error:
        raise CommandError(error, EX_NOINPUT) from None
    print(json.dumps(asdict(found), indent=1, ensure_ascii=False)) if args.json else show(found)
    return 0


# ---------------------------------------------------------------------------------------------- show

_STYLES = {"alike": "green", "differs": "yellow", "worse": "bold red", "open": "magenta"}


def show(found: Comparison) -> None:
    """Print the table, the differing records, and the verdict."""
    titles = ("", found.candidate, found.baseline, "")
    table = terminal.table(titles, [list(map(escape, row)) for row in rows(found)], folds=True)
    out = terminal.console()
    out.print(f"[dim]{escape(about(found))}[/]")
    out.print(table)
    for other in found.others:
        ours, theirs = escape(other["candidate"]), escape(other["baseline"])
        out.print(f"[yellow]{other['id']}[/]  {ours}  [dim]|[/]  {theirs}")
    out.print(f"[{_STYLES[found.word]}]{found.word}[/]: {escape(found.verdict)}")
    out.print("[dim]This advises; `manners gate run` decides.[/]")


def about(found: Comparison) -> str:
    """A line that says what was compared."""
    facts = [f"{found.records} records"]
    if found.unusable:
        facts.append(f"{found.unusable} that cannot be asked again")
    if found.lost:
        facts.append(f"{found.lost} lost on the way")
    return ", ".join(facts) + ", asked at temperature 0"


def rows(found: Comparison) -> list[tuple[str, ...]]:
    """The table's rows: title, candidate, baseline, both."""
    calls, seen = found.calls, found.breaches
    points = f"{100 * seen.low:+.0f} to {100 * seen.high:+.0f} points"
    paired = f"only here {seen.only_candidate}, only there {seen.only_baseline} ({points})"
    return [
        ("calls agree", "", "", f"{calls.k} of {calls.n} ({calls.low:.0%} to {calls.high:.0%})"),
        ("breaches", f"{seen.candidate} of {seen.n}", f"{seen.baseline} of {seen.n}", paired),
        *((f"… {name}", *map(str, of.values()), "") for name, of in found.detectors.items()),
    ]
