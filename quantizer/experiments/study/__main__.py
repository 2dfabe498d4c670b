"""Measure how FP4 changes a model's behaviour, and what restores it: `python -m quantizer.experiments.study all
--out DIR`.

  all      every size and seed, several processes on one device, for a given number of minutes; continues an earlier run
  one      one size and one seed
  check    compare CUDA graphs with the same work run eagerly
  collect  pack results and some fine-tunes into a few small files
  ladder-report, settings-report, architectures-report   the same for the ladder, for its settings of recovery, and for
           other architectures
  report   write tables, plots and text from the raw results of a folder
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from quantizer.experiments.study.grid import FIRST_RATES, GRID, METHODS, PATIENCE, RATES, TINY, Grid
from quantizer.experiments.study.ladder import LADDER, SETTINGS, TINY_LADDER, TINY_SETTINGS


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    given = _parser().parse_args(arguments)
    grid = _chosen(given, _grid(given))
    if given.command == "all":
        from quantizer.experiments.study.launch import everything

        everything(
            grid,
            given.out,
            given.tokenizer,
            minutes=given.minutes,
            processes=given.processes,
            tiny=["--tiny"] if given.tiny else [],
            same=_same(given),
            check=not given.unchecked,
        )
    elif given.command == "one":
        _one(given, grid)
    elif given.command == "check":
        from quantizer.core.cost import default_device
        from quantizer.experiments.study.check import check

        found = check(grid.sizes["6.8M"], grid.tokens, default_device())
        given.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
        print(json.dumps(found, indent=1))
    elif given.command == "collect":
        from quantizer.experiments.study.launch import collect

        for path in collect(given.folder, given.out, given.models):
            print(path, path.stat().st_size)
    elif given.command == "ladder-report":
        from quantizer.experiments.study import ladder_page

        ladder_page.write(given.folder)
    elif given.command == "settings-report":
        from quantizer.experiments.study import settings_page

        settings_page.write(given.folder)
    elif given.command == "architectures-report":
        from quantizer.experiments.study import architectures_page

        architectures_page.write(given.folder)
    else:
        from quantizer.experiments.study.report import write

        write(given.folder)


def _one(given: Any, grid: Any) -> None:
    from tokenizers import Tokenizer

    from quantizer.experiments.study.graph import Graphs
    from quantizer.experiments.study.run import Study

    Graphs.failed = given.eager
    tokenizer = Tokenizer.from_file(str(given.tokenizer))
    left = lambda: given.until - time.monotonic()  # noqa: E731
    Study(grid, given.size, given.seed, given.folder, tokenizer, left, given.rates, given.only).run()


def _grid(given: Any) -> Grid:
    """The grid that the flags ask for."""
    tiny = getattr(given, "tiny", False)
    if getattr(given, "settings", False):
        return TINY_SETTINGS if tiny else SETTINGS
    if getattr(given, "ladder", False):
        return TINY_LADDER if tiny else LADDER
    return TINY if tiny else GRID


def _chosen(given: Any, grid: Grid) -> Grid:
    """The requested part of a grid, with the number of recovery steps of the rates."""
    sizes, strengths = getattr(given, "sizes", None), getattr(given, "strengths", None)
    patience = PATIENCE.get(getattr(given, "rates", FIRST_RATES), 1)
    return replace(
        grid,
        recovery=grid.recovery * patience,
        recovery_steps=grid.recovery_steps * patience,
        sizes={name: shape for name, shape in grid.sizes.items() if not sizes or name in sizes},
        strengths=tuple(one for one in grid.strengths if not strengths or one.name in strengths),
        seeds=tuple(getattr(given, "seeds", None) or grid.seeds),
    )


def _same(given: Any) -> list[str]:
    """Flags that `all` passes on to every run."""
    words = [
        "--rates",
        given.rates,
        *(f"--{flag}" for flag in ("ladder", "settings") if getattr(given, flag)),
    ]
    for flag, values in (("--only", given.only), ("--strengths", given.strengths)):
        words += [flag, *values] if values else []
    return words


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m quantizer.experiments.study", description=__doc__, formatter_class=raw
    )
    commands = parser.add_subparsers(dest="command", required=True)
    whole, one = commands.add_parser("all"), commands.add_parser("one")
    whole.add_argument("--out", type=Path, required=True, help="a folder, outside the repository")
    whole.add_argument("--minutes", type=float, default=18.0, help="begin no further cell after so many")
    whole.add_argument("--processes", type=int, default=6)
    whole.add_argument("--sizes", nargs="+", choices=LADDER.sizes, metavar="SIZE")
    whole.add_argument("--seeds", nargs="+", type=int, metavar="N")
    whole.add_argument("--unchecked", action="store_true", help="do not check CUDA graphs first")
    one.add_argument("size", choices=LADDER.sizes)
    one.add_argument("seed", type=int)
    one.add_argument("folder", type=Path, help="where `all` put the conversations")
    one.add_argument("--until", type=float, default=float("inf"), help="on the clock that never goes back")
    one.add_argument("--eager", action="store_true", help="without CUDA graphs")
    check = commands.add_parser("check")
    check.add_argument("out", type=Path, help="a JSON file")
    for command in (whole, one, check):
        command.add_argument("--tiny", action="store_true", help="the same path in seconds, for a test")
    for command in (whole, one):
        command.add_argument(
            "--ladder", action="store_true", help="sizes that grow, thin manners, old knowledge"
        )
        command.add_argument(
            "--settings", action="store_true", help="on the ladder's models: settings of recovery compared"
        )
        command.add_argument(
            "--rates", choices=RATES, default=FIRST_RATES, help="of recovery (default: %(default)s)"
        )
        command.add_argument("--only", nargs="+", choices=sorted({*METHODS, *LADDER.first, *LADDER.rest}), default=(), metavar="M",
                             help="these methods, and what they are compared with")  # fmt: skip
        command.add_argument(
            "--strengths",
            nargs="+",
            choices=[s.name for s in (*GRID.strengths, *LADDER.strengths)],
            metavar="S",
        )
        command.add_argument("--tokenizer", type=Path, default=Path("models/annie-nano-hf/tokenizer.json"))
    home = commands.add_parser("collect")
    home.add_argument("folder", type=Path)
    home.add_argument("out", type=Path)
    home.add_argument("--models", type=int, default=3, help="fine-tunes of the larger size")
    for name in ("report", "ladder-report", "settings-report", "architectures-report"):
        commands.add_parser(name).add_argument("folder", type=Path, nargs="?", default=Path("docs/study"))
    return parser


if __name__ == "__main__":
    main()
