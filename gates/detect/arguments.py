"""Parses the raw arguments of a tool call strictly: `read_arguments`. Pure. No repair."""

import json
from dataclasses import dataclass
from typing import Any

from gates.contracts import strict_json


@dataclass(frozen=True, slots=True)
class InvalidArguments:
    """Why arguments are not a JSON object."""

    detail: str


def read_arguments(raw: str) -> dict[str, Any] | InvalidArguments:
    """The object in a call's argument text, or why it is not one. A call without arguments must have `{}` (vLLM #11392)."""
    if not raw.strip():
        return InvalidArguments("empty; a call without arguments says {}")
    try:
        value = strict_json.loads(raw, unique_keys=True)
        json.dumps(value, ensure_ascii=False).encode()  # raises for half a surrogate pair
    except ValueError as error:
        return InvalidArguments(str(error)[:80])
    return value if isinstance(value, dict) else InvalidArguments(f"is a JSON {type(value).__name__}")
