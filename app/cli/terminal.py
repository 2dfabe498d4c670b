"""Tables and a progress bar, for a terminal or for a pipe."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console, JustifyMethod
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
    rows = [(escape(one["name"]), MARKS[one["heard"]], escape(one["why"])) for one in found]
    console(240).print(table(("row", "passed", "why"), rows))
    counts = [f"{sum(one['heard'] == mark for one in found)} {mark}" for mark in MARKS]
    print(f"{len(found)} rows: {', '.join(counts)}")


def show_rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of plain text."""
    console(240).print(table(titles, [[escape(cell) for cell in row] for row in rows]))


def table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, folds: bool = False, numbers_from: int = 100
) -> Table:
    """A table in the style of every command, of cells in rich's markup. Its last column is wrapped, and the others where it `folds`."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for at, title in enumerate(titles, 1):
        one_line = at < len(titles) and not folds
        justify: JustifyMethod = "right" if at > numbers_from else "left"
        grid.add_column(escape(title), overflow="fold", no_wrap=one_line, justify=justify)
    for row in rows:
        grid.add_row(*row)
    return grid


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr, with the time that is left; call the yielded function with a line for each finished item."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("asking", total=total)

        def advance(line: str) -> None:
            bar.console.print(escape(line))
            bar.advance(task)

        yield advance
