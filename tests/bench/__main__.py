"""`python -m tests.bench`: Manners beside its peers, in one run.

It measures and reports; whether an aim was met decides no exit code, because a shared machine is
no judge. It exits 1 only when this gateway itself could not be measured.
"""

import argparse
import datetime
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.bench import machine, peers, report
from tests.bench.rounds import ROWS, Effort, Failed, engine, run, started
from tests.bench.subjects import SUBJECTS, Before

DOCS = Path(__file__).parent.parent.parent / "docs"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    option = parser.add_argument
    option("--quick", action="store_true", help="a smoke test: two short rounds, no LiteLLM, no files")
    option("--subjects", nargs="+", choices=SUBJECTS, help="which (all)")
    option(
        "--before", type=Path, metavar="DIR", help="another checkout of this repository, measured beside it"
    )
    option("--rows", nargs="+", choices=[row.name for row in ROWS], help="which (all)")
    option("--rounds", type=int, default=0, help="measured rounds (5; --quick: 2)")
    option(
        "--patience", type=float, default=300.0, metavar="S", help="seconds to wait for quiet moments, in all"
    )
    option("--out", type=Path, help="folder for bench.md and bench.json (docs; --quick: none)")
    option("--install", action="store_true", help="make the peers' venvs, and nothing else")
    options = parser.parse_args()
    Before.checkout = options.before and options.before.resolve()
    return options


def _measure(options: argparse.Namespace, console: Console) -> report.Report:
    without = ({"litellm"} if options.quick else set()) | ({"before"} if options.before is None else set())
    chosen = options.subjects or [name for name in SUBJECTS if name not in without]
    names = list(dict.fromkeys([report.BASE, *chosen]))
    rows = [row for row in ROWS if not options.rows or row.name in options.rows]
    patience = machine.Patience(0.0 if options.quick else options.patience)
    effort = Effort(options.rounds or (2 if options.quick else 5), 0.2 if options.quick else 1.0, patience)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as place,
        engine(Path(place)) as port,
        console.status("starting") as status,
        started(names, port, Path(place)) as (running, missing),
    ):
        samples, failed = run(running, rows, effort, status.update)
        versions = {subject.name: subject.version() for subject in running if subject.version()}
    words = ("DIR" if options.before and Path(word) == options.before else word for word in sys.argv[1:])
    return report.Report(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=" ".join(["python -m tests.bench", *words]),
        rounds=effort.rounds,
        machine=machine.facts(),
        versions=versions,
        missing={**missing, **failed},
        samples=samples,
        rows=rows,
    )


def main() -> int:
    """Measure, show, write."""
    options, console = _arguments(), Console()
    if sys.platform != "linux":
        console.print("the bench needs Linux: it reads CPU clocks by /proc and paces with timerfd")
        return 69
    if options.install:
        for name in peers.NAMES:
            peers.install(name)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    try:
        found = _measure(options, console)
    except Failed as why:
        console.print(f"[red]{why}[/]")
        return 1
    print(report.markdown(found))
    folder = options.out or (None if options.quick else DOCS)
    for path in report.write(found, folder) if folder else []:
        console.print(f"wrote {path}")
    return 1 if "manners" in found.missing else 0


if __name__ == "__main__":
    sys.exit(main())
