"""TOML files that come with this program, or are given by their path: policies, suites, recipes, plans."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates.decode.decoder import DecodeError, T, nearest, read


@dataclass(frozen=True, slots=True)
class TomlFiles:
    """All files of one kind. Every method raises `error`, one line that names the file."""

    kind: str
    folder: Path
    error: Callable[[str], Exception]

    def shipped(self) -> tuple[str, ...]:
        """The names of those that come with this program."""
        return tuple(sorted(path.stem for path in self.folder.glob("*.toml")))

    def path(self, name_or_path: str | Path) -> Path:
        """The path of a shipped one by its name, or of any by its path."""
        path = Path(name_or_path)
        if path.suffix == ".toml":
            return path
        if str(name_or_path) not in self.shipped():
            hint = nearest(str(name_or_path), self.shipped())
            raise self.error(f"{name_or_path}: no such {self.kind}{hint}; or give the path of a file")
        return self.folder / f"{name_or_path}.toml"

    def table(self, text: str, where: str) -> dict[str, Any]:
        """The table that a TOML text holds."""
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.error(f"{where}: not TOML ({error})") from None

    def read(self, hint: type[T], text: str, where: str) -> T:
        """The value of a TOML text's table."""
        try:
            return read(hint, self.table(text, where))
        except DecodeError as refused:
            raise self.error(f"{where}: {refused}") from None


def read_text(path: Path, error: Callable[[str], Exception], most: int = -1) -> str:
    """A file's text, `most` bytes of it at the most. Raises `error`, one line that names the file."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode()
    except OSError as why:
        raise error(f"{path}: cannot be read ({why.strerror})") from None
    except UnicodeDecodeError:
        raise error(f"{path}: is not UTF-8 text") from None
