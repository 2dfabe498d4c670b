"""JSON that can be written and computed with again: without what Python accepts beyond RFC 8259 (NaN, 1e999, 400 digits). Pure."""

import json
from collections import Counter
from collections.abc import Iterator
from math import isinf
from pathlib import Path
from typing import Any, Final

from gates.contracts.errors import SuiteError

MAX_DIGITS: Final = 308
"""Of a whole number: every one of so many digits is a float, too."""


def loads(text: str | bytes, *, unique_keys: bool = False) -> Any:
    """The value of a JSON text. Raises ValueError: none, nested too deeply, a number that is no double, and with `unique_keys` a repeated key."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique if unique_keys else None,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError(f"a key is there twice: {Counter(key for key, _ in pairs).most_common(1)[0][0]}")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError(f"{text[:40]} is too large for a double")
    return value


def _bounded(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{text[:40]}… is too large for a double")
    return int(text)


def read_objects(path: Path, *, unique_keys: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place (FILE:LINE) and object, without blank lines. `unique_keys`: a repeated key is an error. Raises SuiteError."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    value = loads(line, unique_keys=unique_keys)
                except ValueError as error:
                    raise SuiteError(f"{where}: not JSON ({error})") from None
                if not isinstance(value, dict):
                    raise SuiteError(f"{where}: must be a JSON object")
                yield where, value
    except OSError as error:
        raise SuiteError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise SuiteError(f"{path}: is not UTF-8 text") from None
