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
from app.shadow.compare import SENTENCES
from app.shadow.replay import replay
from gates.run.progress import Display


def run(args: argparse.Namespace) -> int:
    """Replay, compare and print. The exit code does not depend on what the comparison finds."""
    wanted = {name: getattr(args, name) for name in ("candidate", "against", "days", "limit")}
    found = asyncio.run(replay(load(args.config), datetime.now(UTC), **wanted, progress=Display("replay")))
    if args.json:
        print(json.dumps(asdict(found), indent=1, ensure_ascii=False))
        return 0
    (low, high), (less, more) = found.same_share, found.more_share
    rows = [
        ("calls agree", "", "", f"{found.same} of {found.calls} ({low:.0%} to {high:.0%})"),
        ("more breaches", "", "", f"{less:+.0%} to {more:+.0%}"),
        *((f"breaches: {name}", *map(str, of.values()), "") for name, of in found.breaches.items()),
    ]
    print(f"{found.records} records, {found.left_out} left out")
    show_rows(("", found.candidate, found.baseline, ""), rows)
    print(f"{found.word}: {SENTENCES[found.word]} (this advises; `manners gate run` decides)")
    return 0
