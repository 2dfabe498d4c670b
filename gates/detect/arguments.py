"""Parses the raw arguments of a tool call strictly: `read_arguments`. Pure.

One JSON object by RFC 8259; duplicate keys, NaN, Infinity and lone surrogates are refused, as a caller may. No repair.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class InvalidArguments:
    """Why arguments are not a JSON object: `kind` is a `CallFault`'s value, `at` the position of the fault."""

    kind: str
    at: int
    detail: str


class _InvalidJson(ValueError):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def read_arguments(raw: str) -> dict[str, Any] | InvalidArguments:
    """The object in a call's argument text, or why it is not one. A call without arguments must have `{}` (vLLM #11392)."""
    if not raw.strip():
        return InvalidArguments("invalid_json", 0, "empty; a call without arguments says {}")
    try:
        value = json.loads(
            raw,
            object_pairs_hook=_reject_duplicate_keys,
            parse_constant=_reject_constant,
            parse_float=_finite,
        )
        written = json.dumps(value, ensure_ascii=False)
    except json.JSONDecodeError as error:
        return InvalidArguments("invalid_json", error.pos, error.msg)
    except _InvalidJson as refused:
        return InvalidArguments(refused.kind, 0, str(refused))
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of 5,000 digits
        return InvalidArguments("invalid_json", 0, str(error)[:80])
    if not isinstance(value, dict):
        return InvalidArguments("not_an_object", 0, f"is a JSON {type(value).__name__}")
    if _LONE_SURROGATE.search(written):
        return InvalidArguments("invalid_json", 0, "half a surrogate pair")
    return value


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _InvalidJson("duplicate_key", f"{twice!r} is said twice")
    return table


def _reject_constant(name: str) -> Any:
    raise _InvalidJson("not_finite", f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _InvalidJson("not_finite", f"{text[:40]} is beyond a double")
    return value
