"""Canonical JSON, and typed values as plain ones; `gates.decode.decoder` reads them. Pure."""

import json
from typing import Any

import msgspec

from gates.decode.decoder import DecodeError, convert


def canonical(value: Any) -> bytes:
    """Canonical JSON as UTF-8: sorted keys, no spaces, only necessary escapes. Raises DecodeError for NaN, infinity and surrogates."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError) as error:
        raise DecodeError("", f"cannot be written as JSON ({error})") from None


def encode(value: Any, hint: Any = Any) -> Any:
    """The plain JSON value of a dataclass or NamedTuple. With its hint, an int where a float belongs becomes one."""
    plain = msgspec.to_builtins(value)
    return plain if hint is Any else msgspec.to_builtins(convert(plain, hint))
