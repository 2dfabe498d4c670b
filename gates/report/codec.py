"""Encodes frozen dataclasses as plain JSON values and decodes them strictly, by their type hints. Pure.

A report is evidence, so what is read must be exactly what was written: `gates.decode.decoder.decode`
names the place of every difference. Dataclasses are JSON objects, and NamedTuples arrays, to keep long
lists short. Infinite floats are written as the text "inf" or "-inf", because JSON cannot represent them
and a latency may be infinite. NaN is refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any, get_args, get_origin

from gates.decode import decoder
from gates.decode.decoder import DecodeError, field_hints, is_named_tuple

_AS_THEY_ARE = frozenset((str, int, bool, type(None)))
_is_record = cache(dataclasses.is_dataclass)  # of a type: a report has many thousand values of few types


class CodecError(ValueError):
    """A value that does not fit its hint. The message begins with the place of the fault."""


def canonical(value: Any) -> bytes:
    """Canonical JSON as UTF-8: sorted keys, no spaces, only necessary escapes. One value has one text.

    Raises CodecError for NaN, for a lone surrogate, and for types that JSON does not have.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError) as error:
        raise CodecError(f"cannot be written as JSON ({error})") from None


# ---------------------------------------------------------------------------------------- encode


def encode(value: Any) -> Any:
    """The plain JSON value of a dataclass or NamedTuple, or of what they contain."""
    kind: Any = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if _is_record(kind):
        return {name: _encode_as(getattr(value, name), hint) for name, hint in field_hints(kind).items()}
    if is_named_tuple(kind):
        return [_encode_as(getattr(value, name), hint) for name, hint in field_hints(kind).items()]
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else _no_number(value)
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def _encode_as(value: Any, hint: Any) -> Any:
    """As `encode`, but an int where a float is expected is written as a float: same value, same text."""
    if type(value) is hint and hint in _AS_THEY_ARE:
        return value
    may_be_float, items = _arms(hint)
    if type(value) is int and may_be_float:
        return float(value)
    if items is not None:
        return [_encode_as(item, items) for item in value]
    return encode(value)


@cache
def _arms(hint: Any) -> tuple[bool, Any]:
    """Whether a float fits the hint, and the hint of a tuple's items, or None."""
    arms = get_args(hint)
    return float in (hint, *arms), arms[0] if get_origin(hint) is tuple else None


def _no_number(value: float) -> str:
    if math.isnan(value):
        raise CodecError("NaN is no measurement")
    return "inf" if value > 0 else "-inf"


# ---------------------------------------------------------------------------------------- decode


def decode(hint: Any, value: Any, where: str) -> Any:
    """A value of type `hint` from a JSON value. Raises CodecError that names the place."""
    try:
        return decoder.decode(hint, value, where)
    except DecodeError as refused:
        raise CodecError(str(refused)) from None
