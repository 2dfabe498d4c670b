"""Tables and a bar, for a terminal or for whoever reads the lines."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from app.conformance.known import Heard

MARKS = {"yes": "[green]yes[/]", "gap": "[yellow]gap[/]", "no": "[red]no[/]"}
WIDE = 240
"""Columns where there is no terminal to ask."""


def show_heard(found: Sequence[Heard], title: str) -> None:
    """Every row of a check, and how many of them were right."""
    print(title)
    _print(("row", "heard", "why"), [(escape(one.name), MARKS[one.heard], escape(one.why)) for one in found])
    counts = [f"{sum(one.heard == mark for one in found)} {mark}" for mark in MARKS]
    print(f"{len(found)} rows: {', '.join(counts)}")


def show_rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Plain cells."""
    _print(titles, [[escape(cell) for cell in row] for row in rows])


def _print(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Only the last column is folded."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles[:-1]:
        table.add_column(escape(title), no_wrap=True)
    table.add_column(escape(titles[-1]), overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console()
    (console if console.is_terminal else Console(width=WIDE)).print(table)


@contextmanager
def progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal while rows are asked; called for each that is over."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("asking", total=total)
        yield lambda: bar.advance(task)
