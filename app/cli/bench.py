"""`manners bench`: latency tables over serving configurations.

Requests and timing are those of the latency gate (`gates.run`); the cells of the table are in
`deploy.profiles.matrix`. This module starts the engines and prints the table.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from app.cli.terminal import console, table
from app.config.config import Config, load
from app.engines.identity import target_of
from app.engines.started import started
from deploy.engine.spec import EngineSpec
from deploy.profiles import matrix
from deploy.profiles.matrix import TITLES, BenchCell, BenchRow, finite, words
from gates.contracts.case import Suite
from gates.contracts.sample import LATENCY_PREFIX
from gates.run.latency_readings import latency_readings
from gates.run.latency_schedule import Schedule
from gates.run.progress import Display
from gates.run.runner import LATENCY_PACE
from gates.run.runner import run as ask
from gates.run.sample_store import SampleStore
from gates.run.target import Target
from gates.suite.load import load_suite


def run(args: argparse.Namespace) -> int:
    """Measure and print the table; the exit code."""
    return asyncio.run(_run(args, load(args.config)))


async def _run(args: argparse.Namespace, config: Config) -> int:
    specs = chosen(args, config)
    suite = load_suite(args.suite or config.gates.suite)
    schedule = Schedule(
        buckets=args.length,
        regime=args.regime,
        blocks=args.rounds,
        pause_s=(args.pause, args.pause * 2),
        max_tokens=args.max_tokens,
    )
    async with AsyncExitStack() as stack:
        engines = {name: await _up(spec, config, stack) for name, spec in specs.items()}
        ways = (False, True) if args.matrix else (False,)
        shapes = (True, False) if args.matrix else (True,)
        asked = matrix.cells(engines, ways, shapes)
        found = await _measure(args, suite, asked, engines, schedule)
    table = matrix.rows(asked, args.length, found)
    print(as_json(args, suite.name, table)) if args.json else show(args, suite.name, table)
    return 0


def chosen(args: argparse.Namespace, config: Config) -> dict[str, EngineSpec]:
    """The engines of the configuration to compare: those that are named, or that models use for chat."""
    used = dict.fromkeys(name for model in config.models.values() for name in model.engines)
    wanted = args.engine or [name for name in used if config.engines[name].kind == "chat"]
    return {name: config.engine(name) for name in wanted}


async def _up(spec: EngineSpec, config: Config, stack: AsyncExitStack) -> Target:
    """Start an engine, which stops with the stack. Raises RunError."""
    _, state = await started(config, spec, stack)
    return target_of(spec, state, str(spec.artefact or state.url), spec.name)


async def _measure(
    args: argparse.Namespace,
    suite: Suite,
    asked: Sequence[BenchCell],
    engines: Mapping[str, Target],
    schedule: Schedule,
) -> Sequence[Any]:
    """Send all requests; their readings."""
    prompts = matrix.pick(suite, args.prompts)
    targets = {LATENCY_PREFIX + cell.arm: engines[cell.engine] for cell in asked}
    with tempfile.TemporaryDirectory(prefix="manners-bench-") as folder:
        out = args.out or Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        with SampleStore(out / "samples.jsonl", suite=suite.digest) as book:
            wanted = matrix.plan(suite, asked, engines, prompts, schedule)
            await ask(wanted, targets, book, pace=LATENCY_PACE, progress=Display("timing"))
            return latency_readings(book.samples(), cache_unsaid=True)


# ---------------------------------------------------------------------------------------------- show


def as_json(args: argparse.Namespace, suite: str, table: Sequence[BenchRow]) -> str:
    """The table as JSON; a time that was not reached is null."""
    rows = [{k: finite(v) if isinstance(v, float) else v for k, v in asdict(row).items()} for row in table]
    units = {"ttft": "ms", "sentence": "ms", "decode": "tokens/s"}
    return json.dumps({"suite": suite, "regime": args.regime, "units": units, "rows": rows}, indent=1)


def show(args: argparse.Namespace, suite: str, rows: Sequence[BenchRow]) -> None:
    """Print the table, and the reasons of failures."""
    grid = table(TITLES, [list(map(escape, words(row))) for row in rows], numbers_from=3)
    out = console()
    out.print(f"[dim]suite {escape(suite)}, {args.regime}: first content and first sentence in ms (median), "
                  "decode in tokens/s (median)[/]")  # fmt: skip
    out.print(grid)
    for why in dict.fromkeys(row.why for row in rows if row.why):
        out.print(f"[yellow]{escape(why)}[/]")
    if any(not row.stream for row in rows):
        out.print("[dim]A whole reply shows its first content with its last, which is no TTFT.[/]")
