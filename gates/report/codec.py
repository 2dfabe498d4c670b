"""Canonical JSON, and typed values to and from plain ones; what is read must be exactly what was written. Pure."""

import json
from typing import Any

import msgspec

from gates.decode import decoder


class CodecError(ValueError):
    """A value that does not fit its hint. The message begins with the place of the fault."""


def canonical(value: Any) -> bytes:
    """Canonical JSON as UTF-8: sorted keys, no spaces, only necessary escapes. Raises CodecError for NaN, infinity and surrogates."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError) as error:
        raise CodecError(f"cannot be written as JSON ({error})") from None


def encode(value: Any, hint: Any = Any) -> Any:
    """The plain JSON value of a dataclass or NamedTuple. With its hint, an int where a float belongs becomes one."""
    plain = msgspec.to_builtins(value)
    return plain if hint is Any else msgspec.to_builtins(decoder.convert(plain, hint))


def decode(hint: Any, value: Any, where: str) -> Any:
    """A value of type `hint` from a JSON value. Raises CodecError that names the place."""
    try:
        return decoder.read(hint, value, where)
    except decoder.DecodeError as refused:
        raise CodecError(str(refused)) from None
