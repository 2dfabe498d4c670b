"""Canonical JSON, and typed values as plain ones. Pure."""

import json
from typing import Any, Final

import msgspec

from gates.decode.decoder import DecodeError


def canonical(value: Any) -> bytes:
    """Canonical JSON as UTF-8: sorted keys, no spaces, only necessary escapes. Raises DecodeError for NaN, infinity and surrogates."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError) as error:
        raise DecodeError("", f"cannot be written as JSON ({error})") from None


encode: Final = msgspec.to_builtins
"""The plain JSON value of a dataclass or NamedTuple."""
