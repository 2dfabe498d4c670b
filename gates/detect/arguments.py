"""The raw arguments of a tool call, read without mercy: `read_arguments`. Pure.

JSON as RFC 8259 has it, one object and nothing after it. What parsers usually let pass is refused
here, because a caller's parser may not: a key that is said twice (which of the two holds?), NaN and
Infinity, half a surrogate pair. Nothing is repaired; a model that needs repair has lost a manner.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why arguments are no JSON object: `kind` is a `Fault`'s value, `at` where it was noticed."""

    kind: str
    at: int
    detail: str


class _Refused(ValueError):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def read_arguments(raw: str) -> dict[str, Any] | Unreadable:
    """The object that a call's argument text is, or why it is none.

    An empty text is no object: a call without arguments has to say `{}` (vLLM #11392).
    """
    if not raw.strip():
        return Unreadable("invalid_json", 0, "empty; a call without arguments says {}")
    try:
        value = json.loads(raw, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
        written = json.dumps(value, ensure_ascii=False)
    except json.JSONDecodeError as error:
        return Unreadable("invalid_json", error.pos, error.msg)
    except _Refused as refused:
        return Unreadable(refused.kind, 0, str(refused))
    except (RecursionError, ValueError) as error:  # nested too deep, or a number of 5,000 digits
        return Unreadable("invalid_json", 0, str(error)[:80])
    if not isinstance(value, dict):
        return Unreadable("not_an_object", 0, f"is a JSON {type(value).__name__}")
    if _LONE_SURROGATE.search(written):
        return Unreadable("invalid_json", 0, "half a surrogate pair")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _Refused("duplicate_key", f"{twice!r} is said twice")
    return table


def _no_constant(name: str) -> Any:
    raise _Refused("not_finite", f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _Refused("not_finite", f"{text[:40]} is beyond a double")
    return value
