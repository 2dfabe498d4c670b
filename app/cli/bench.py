"""`manners bench`: latency tables over serving configurations.

Requests and timing are those of the latency gate (`gates.run`); the cells of the table are in
`deploy.profiles.matrix`. This module starts the engines and prints the table.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from app.cli.terminal import show_rows
from app.config.config import Config, load
from app.engines.identity import target_of
from app.engines.started import started
from deploy.engine.spec import EngineSpec
from deploy.profiles import matrix
from deploy.profiles.matrix import TITLES, BenchRow, finite, words
from gates.contracts.sample import LATENCY_PREFIX
from gates.run.latency import Schedule, latency_readings
from gates.run.progress import Display
from gates.run.runner import LATENCY_PACE
from gates.run.runner import run as ask
from gates.run.sample_store import SampleStore
from gates.suite.load import load_suite


def run(args: argparse.Namespace) -> int:
    """Measure and print the table; the exit code."""
    return asyncio.run(_run(args, load(args.config)))


async def _run(args: argparse.Namespace, config: Config) -> int:
    specs, suite = chosen(args, config), load_suite(config.gates.suite)
    pauses = (args.pause, args.pause * 2)
    schedule = Schedule(buckets=args.length, blocks=args.rounds, pause_s=pauses, max_tokens=args.max_tokens)
    async with AsyncExitStack() as stack:
        engines = {}
        for name, spec in specs.items():
            _, state = await started(config, spec, stack)
            engines[name] = target_of(spec, state, str(spec.artefact or state.url), name)
        ways = ((False, True), (True, False)) if args.matrix else ((False,), (True,))
        asked = matrix.cells(engines, *ways)
        wanted = matrix.plan(suite, asked, engines, matrix.pick(suite, args.prompts), schedule)
        targets = {LATENCY_PREFIX + cell.arm: engines[cell.engine] for cell in asked}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="manners-bench-")))
        book = stack.enter_context(SampleStore(folder / "samples.jsonl", suite=suite.digest))
        await ask(wanted, targets, book, pace=LATENCY_PACE, progress=Display("timing"))
        found = latency_readings(book.samples(), cache_unsaid=True)
    show(args, suite.name, matrix.rows(asked, args.length, found))
    return 0


def chosen(args: argparse.Namespace, config: Config) -> dict[str, EngineSpec]:
    """The engines of the configuration to compare: those that are named, or that models use for chat."""
    used = dict.fromkeys(name for model in config.models.values() for name in model.engines)
    wanted = args.engine or [name for name in used if config.engines[name].kind == "chat"]
    return {name: config.engine(name) for name in wanted}


def show(args: argparse.Namespace, suite: str, rows: Sequence[BenchRow]) -> None:
    """Print the table, and the reasons of failures; as JSON a time that was not reached is null."""
    if args.json:
        told = [{k: finite(v) if isinstance(v, float) else v for k, v in asdict(row).items()} for row in rows]
        units = {"ttft": "ms", "sentence": "ms", "decode": "tokens/s"}
        print(json.dumps({"suite": suite, "units": units, "rows": told}, indent=1))
        return
    print(f"suite {suite}: medians of first content and first sentence in ms, of decoding in tokens/s; "
          "a whole reply shows its first content with its last")  # fmt: skip
    show_rows(TITLES, map(words, rows))
    for why in dict.fromkeys(row.why for row in rows if row.why):
        print(why)
