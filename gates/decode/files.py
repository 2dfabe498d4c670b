"""TOML files that come with this program, or are given by their path: policies, suites, recipes, plans."""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates.contracts import strict_json
from gates.contracts.errors import SuiteError
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

    def text(self, path: Path, most: int = -1) -> str:
        """A file's text, `most` bytes of it at the most."""
        try:
            with path.open("rb") as file:
                return file.read(most).decode()
        except OSError as error:
            raise self.error(f"{path}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise self.error(f"{path}: is not UTF-8 text") from None

    def table(self, text: str, where: str) -> dict[str, Any]:
        """The table that a TOML text holds."""
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.error(f"{where}: not TOML ({error})") from None

    def read(self, hint: type[T], text: str, where: str, **more: Any) -> T:
        """The value of a TOML text's table, with `more` keys."""
        try:
            return read(hint, {**more, **self.table(text, where)})
        except DecodeError as refused:
            raise self.error(f"{where}: {refused}") from None


def read_objects(path: Path, *, unique_keys: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place (FILE:LINE) and object, without blank lines. `unique_keys`: a repeated key is an error. Raises SuiteError."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}:{number}"
                yield where, _object(line, where, unique_keys)
    except OSError as error:
        raise SuiteError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise SuiteError(f"{path}: is not UTF-8 text") from None


def _object(line: str, where: str, unique_keys: bool) -> dict[str, Any]:
    try:
        value = strict_json.loads(line, unique_keys=unique_keys)
    except ValueError as error:
        raise SuiteError(f"{where}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise SuiteError(f"{where}: must be a JSON object")
    return value
