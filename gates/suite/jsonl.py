"""JSONL files of a suite and of training data: an object in each line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gates.contracts import strict_json
from gates.contracts.errors import SuiteError


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
