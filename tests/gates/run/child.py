"""A run in a process of its own, to be killed: `python -m tests.gates.run.child URL FILE DIALECT CASE...`.

A case's name with a `?` in it is a tool prompt.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from gates.contracts.dialect import Dialect
from gates.run.planned_request import PlannedRequest, plan_requests
from gates.run.runner import run
from gates.run.sample_store import SampleStore
from gates.run.target import Target
from tests.gates.run.parts import QUICK, SUITE, arm, case, suite, target


def asks_for(where: Target, words: Sequence[str]) -> tuple[PlannedRequest, ...]:
    """The same plan in the child and in the test."""
    cases = [case(f"case-{n}", word, tools="?" in word) for n, word in enumerate(words)]
    return plan_requests(suite(*cases, max_tokens=64), [arm("candidate", where), arm("baseline", where)])


async def complete(where: Target, path: Path, words: Sequence[str]) -> None:
    """Ask all that is not on file."""
    with SampleStore(path, suite=SUITE) as ledger:
        await run(asks_for(where, words), {"candidate": where, "baseline": where}, ledger, pace=QUICK)


def main(url: str, file: str, dialect: str, *words: str) -> None:
    """The command line."""
    asyncio.run(complete(target(url, cast(Dialect, dialect)), Path(file), words))


if __name__ == "__main__":
    main(*sys.argv[1:])
