"""Tables for a terminal or for a pipe."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table


def console(width: int = 140) -> Console:
    """A console without syntax colours; `width` is its columns where the output is not a terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(width=width, highlight=False)


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
