"""`manners shadow replay`: replay recorded requests on a candidate and on the live engine, and compare the replies.

The gateway records the requests (`[shadow]` of the configuration). The comparison is advisory.
"""

import argparse
import asyncio
import json
from dataclasses import asdict
from datetime import UTC, datetime

from app.cli.terminal import show_rows
from app.config.config import load
from app.shadow.replay import replay
from gates.run.progress import Display


def run(args: argparse.Namespace) -> int:
    """Replay, compare and print. The exit code does not depend on what the comparison finds."""
    wanted = {name: getattr(args, name) for name in ("candidate", "against", "days", "limit")}
    found = asyncio.run(replay(load(args.config), datetime.now(UTC), **wanted, track=Display))
    if args.json:
        print(json.dumps(asdict(found), indent=1, ensure_ascii=False))
        return 0
    calls, seen, n = found.calls, found.breaches, found.records
    rows = [
        ("calls agree", "", "", f"{calls.k} of {calls.n} ({calls.low:.0%} to {calls.high:.0%})"),
        (
            "breaches",
            f"{seen.candidate} of {n}",
            f"{seen.baseline} of {n}",
            f"{seen.low:+.0%} to {seen.high:+.0%}",
        ),
        *((f"… {name}", *map(str, of.values()), "") for name, of in found.detectors.items()),
    ]
    print(f"{n} records, {found.left_out} left out")
    show_rows(("", found.candidate, found.baseline, ""), rows)
    print(f"{found.word}: {found.verdict} (this advises; `manners gate run` decides)")
    return 0
