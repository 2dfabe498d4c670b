"""JSON that can be written and computed with again: without what Python accepts beyond RFC 8259 (NaN, 1e999, 400 digits). Pure."""

import json
from collections.abc import Callable
from math import isinf
from typing import Any, Final

MAX_DIGITS: Final = 308
"""Of a whole number: every one of so many digits is a float, too."""

ObjectHook = Callable[[list[tuple[str, Any]]], Any] | None


def loads(text: str | bytes, object_pairs_hook: ObjectHook = None) -> Any:
    """The value of a JSON text. Raises ValueError: it is none, is nested too deeply, or has a number that is no double."""
    try:
        return json.loads(
            text,
            object_pairs_hook=object_pairs_hook,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError(f"{text[:40]} is beyond a double")
    return value


def _bounded(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{text[:40]}… is beyond a double")
    return int(text)
