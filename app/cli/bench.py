"""`manners bench`: latency tables over serving configurations.

Requests and timing are those of the latency gate (`gates.run`); the cells of the table are in
`deploy.profiles.matrix`. This module starts the engines and prints the table.
"""

import argparse
import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from app.cli.terminal import show_rows
from app.config.config import load
from app.engines.identity import target_of
from app.engines.started import started
from deploy.profiles import matrix
from gates.contracts.sample import LATENCY_PREFIX
from gates.run.latency import Schedule, latency_readings
from gates.run.progress import Display
from gates.run.runner import LATENCY_PACE
from gates.run.runner import run as ask
from gates.run.sample_store import SampleStore
from gates.suite.load import load_suite

PROMPTS: Final = 3
"""How many prompts of the suite are asked."""
PAUSE_S: Final = (0.5, 1.0)
"""The shortest and longest silence before a request."""


def run(args: argparse.Namespace) -> int:
    """Measure, and print the table and the reasons of failures; as JSON a time that was not reached is null."""
    suite, rows = asyncio.run(_measured(args))
    if args.json:
        units = {"ttft": "ms", "sentence": "ms", "decode": "tokens/s"}
        told = msgspec.json.encode({"suite": suite, "units": units, "rows": rows})
        print(msgspec.json.format(told, indent=1).decode())
        return 0
    print(f"suite {suite}: medians of first content and first sentence in ms, of decoding in tokens/s; "
          "a whole reply shows its first content with its last")  # fmt: skip
    show_rows(matrix.TITLES, map(matrix.words, rows))
    for why in dict.fromkeys(row.why for row in rows if row.why):
        print(why)
    return 0


async def _measured(args: argparse.Namespace) -> tuple[str, tuple[matrix.BenchRow, ...]]:
    """The suite's name, and the rows of the named engines, or of those that models use for chat."""
    config = load(args.config)
    suite = load_suite(config.gates.suite)
    used = dict.fromkeys(name for model in config.models.values() for name in model.engines)
    names = args.engine or [name for name in used if config.engines[name].kind == "chat"]
    schedule = Schedule(buckets=args.length, blocks=args.rounds, pause_s=PAUSE_S)
    async with AsyncExitStack() as stack:
        engines = {}
        for name in names:
            spec = config.engine(name)
            _, state = await started(config, spec, stack)
            engines[name] = target_of(spec, state, str(spec.artefact or state.url), name)
        ways = ((False, True), (True, False)) if args.matrix else ((False,), (True,))
        asked = matrix.cells(engines, *ways)
        wanted = matrix.plan(suite, asked, engines, matrix.pick(suite, PROMPTS), schedule)
        targets = {LATENCY_PREFIX + cell.arm: engines[cell.engine] for cell in asked}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="manners-bench-")))
        book = stack.enter_context(SampleStore(folder / "samples.jsonl", suite=suite.digest))
        await ask(wanted, targets, book, pace=LATENCY_PACE, progress=Display("timing"))
        found = latency_readings(book.samples(), cache_unsaid=True)
    return suite.name, matrix.rows(asked, args.length, found)
