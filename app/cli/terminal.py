"""Tables and a progress bar, for a terminal or for a pipe."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

MARKS = {"yes": "[green]yes[/]", "gap": "[yellow]gap[/]", "no": "[red]no[/]"}


def console(width: int = 140) -> Console:
    """A console without syntax colours; `width` is its columns where the output is not a terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(width=width, highlight=False)


def show_outcomes(found: Sequence[dict[str, str]], title: str) -> None:
    """The outcomes of the conformance suite, and how many checks passed."""
    print(title)
    _print(
        ("row", "passed", "why"),
        [(escape(one["name"]), MARKS[one["heard"]], escape(one["why"])) for one in found],
    )
    counts = [f"{sum(one['heard'] == mark for one in found)} {mark}" for mark in MARKS]
    print(f"{len(found)} rows: {', '.join(counts)}")


def show_rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of plain text."""
    _print(titles, [[escape(cell) for cell in row] for row in rows])


def _print(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Only the last column is wrapped."""
    grid = table()
    for title in titles[:-1]:
        grid.add_column(escape(title), no_wrap=True)
    grid.add_column(escape(titles[-1]), overflow="fold")
    for row in rows:
        grid.add_row(*row)
    console(240).print(grid)


def table() -> Table:
    """An empty table in the style of every command."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr, with the time that is left; call the yielded function with a line for each finished item."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("asking", total=total)

        def advance(line: str) -> None:
            bar.console.print(escape(line))
            bar.advance(task)

        yield advance
