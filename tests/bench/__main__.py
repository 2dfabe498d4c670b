"""`python -m tests.bench`: Manners beside its peers, in one run.

It measures and reports; whether an aim was met decides no exit code, because a shared machine is
no judge. It exits 1 only when this gateway itself could not be measured.
"""

import argparse
import datetime
import signal
import subprocess
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
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: two short rounds, no LiteLLM, no files"
    )
    parser.add_argument("--subjects", default="", metavar="A,B", help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument(
        "--before", type=Path, metavar="DIR", help="another checkout of this repository, measured beside it"
    )
    parser.add_argument("--rows", default="", metavar="A,B", help=f"of {', '.join(row.name for row in ROWS)}")
    parser.add_argument("--rounds", type=int, default=0, help="measured rounds (5; --quick: 2)")
    parser.add_argument(
        "--patience", type=float, default=300.0, metavar="S", help="seconds to wait for quiet moments, in all"
    )
    parser.add_argument("--out", type=Path, help="folder for bench.md and bench.json (docs; --quick: none)")
    parser.add_argument("--install", action="store_true", help="make the peers' venvs, and nothing else")
    options = parser.parse_args()
    options.subjects = _chosen(parser, options.subjects, list(SUBJECTS))
    options.rows = _chosen(parser, options.rows, [row.name for row in ROWS])
    Before.checkout = options.before and options.before.resolve()
    return options


def _chosen(parser: argparse.ArgumentParser, given: str, known: list[str]) -> list[str]:
    names = [name for name in given.split(",") if name]
    if unknown := set(names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return names


def _install(console: Console) -> int:
    for name in peers.NAMES:
        console.print(f"installing {name} …")
        try:
            peers.install(name)
        except subprocess.CalledProcessError as error:
            console.print(f"[red]{name}: pip ended with {error.returncode}[/]")
            return 1
    return 0


def _subjects(options: argparse.Namespace) -> list[str]:
    without = {"litellm"} if options.quick else set()
    if options.before is None:
        without.add("before")
    default = [name for name in SUBJECTS if name not in without]
    chosen = options.subjects or default
    return ["direct", *(name for name in chosen if name != "direct")]


def _measure(options: argparse.Namespace, console: Console) -> report.Report:
    names = _subjects(options)
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
    return report.Report(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=" ".join(
            [
                "python -m tests.bench",
                *("DIR" if options.before and Path(w) == options.before else w for w in sys.argv[1:]),
            ]
        ),
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
        return _install(console)
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
