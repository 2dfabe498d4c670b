"""What is shown: in this terminal, as an asciinema recording, and as a still picture."""

import io
import json
import sys
import time
from pathlib import Path
from typing import Any, Final, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

WIDTH: Final = 100
HEIGHT: Final = 40


class _Tee(io.TextIOBase):
    """Standard output whose every write is noted with its time."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._began = out, time.monotonic()
        self.events: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        self.events.append((time.monotonic() - self._began, text))
        return self._out.write(text)

    def flush(self) -> None:
        self._out.flush()


class Screen:
    """One story, told in as many ways as were asked for."""

    def __init__(self, cast: Path | None, still: Path | None) -> None:
        self._cast, self._still = cast, still
        self._tee = _Tee(sys.stdout)
        told = {"width": WIDTH, "highlight": False}
        force: Any = {"force_terminal": True, "color_system": "256"} if cast else {}
        self._console = Console(file=self._tee if cast else sys.stdout, **told, **force)  # type: ignore[arg-type]
        self._paper = Console(
            file=io.StringIO(), record=True, force_terminal=True, color_system="truecolor", **told  # type: ignore[arg-type]
        )  # fmt: skip

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
        """Write the files that were asked for."""
        if self._still:
            self._paper.save_svg(str(self._still), title="make demo")
        if self._cast:
            head = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": "Manners: make demo",
                    "env": {"TERM": "xterm-256color"}}  # fmt: skip
            lines = [json.dumps(head)]
            lines += [
                json.dumps([round(at, 3), "o", text.replace("\n", "\r\n")], ensure_ascii=False)
                for at, text in self._tee.events
            ]
            self._cast.write_text("\n".join(lines) + "\n", "utf-8")
