"""Tables for a terminal or for a pipe."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Column = str | Callable[[dict[str, Any]], str]
"""A key of a row, with dots for keys below; or a function of the row."""


def show_rows(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of plain text. A pipe gets 240 columns."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 240
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        grid.add_column(title, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    console.print(grid)


def show_list(rows: Iterable[dict[str, Any]], columns: Mapping[str, Column]) -> None:
    """Print a table with a line for each row; `columns` maps each title to a key of the rows, or to a function of a row."""
    show_rows(tuple(columns), [[_cell(row, column) for column in columns.values()] for row in rows])


def _cell(row: Any, column: Column) -> str:
    if callable(column):
        return column(row)
    for key in column.split("."):
        row = row.get(key) if row else None
    if isinstance(row, list):
        return ", ".join(row)
    return "" if row is None else str(row)
