"""What is shown: in this terminal, and as a still picture."""

import io
from pathlib import Path
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

WIDTH: Final = 100


class Screen:
    """One story, told in as many ways as were asked for."""

    def __init__(self, still: Path | None) -> None:
        self._still = still
        self._console = Console(width=WIDTH, highlight=False)
        told: Any = {
            "file": io.StringIO(),
            "record": True,
            "force_terminal": True,
            "color_system": "truecolor",
        }
        self._paper = Console(width=WIDTH, highlight=False, **told)

    def say(self, what: RenderableType = "") -> None:
        """One line, with markup, or a table."""
        for console in (self._console, self._paper):
            console.print(what)

    def act(self, title: str, words: str) -> None:
        """A heading, and what it is about."""
        self.say()
        self.say(f"[bold cyan]▌ {title}[/]")
        self.say(Padding(Text.from_markup(words, style="dim"), (0, 0, 0, 2), expand=False))

    def command(self, words: str) -> None:
        """A command, as one types it."""
        self.say(f"  [green]$[/] [bold]{words}[/]")

    def output(self, line: str) -> None:
        """A line of a command, in its own colours."""
        self.say(Padding(Text.from_ansi(line), (0, 0, 0, 4), expand=False))

    def refusal(self, line: str) -> None:
        """What a command complained of."""
        self.say(Padding(Text(line, style="red"), (0, 0, 0, 4), expand=False))

    def waiting(self, words: str) -> Any:
        """Something that turns until it is over; not in the still picture."""
        return self._console.status(f"[dim]{words}[/]", spinner="dots", refresh_per_second=3)

    def keep(self) -> None:
        """Write the picture if it was asked for."""
        if self._still:
            self._paper.save_svg(str(self._still), title="make demo")
