"""Encodes frozen dataclasses as plain JSON values and decodes them strictly, by their type hints. Pure.

A report is evidence, so what is read must be exactly what was written. An unknown key, a missing key
or a value of another type raises an error of one line that names its place; nothing is converted
silently.

Supported hints: str, int, float, bool, `X | None`, Literal, StrEnum, `tuple[X, ...]`,
`Mapping[str, X]`, dataclasses (JSON objects) and NamedTuples (JSON arrays, to keep long lists short).
Infinite floats are written as the text "inf" or "-inf", because JSON cannot represent them and a
latency may be infinite. NaN is refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_INFINITE: Final = {"inf": math.inf, "-inf": -math.inf}


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


@cache
def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    if _is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {name: hints[name] for name in kind._fields}


def _is_dataclass(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint)


def _is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


# ---------------------------------------------------------------------------------------- encode


def encode(value: Any) -> Any:
    """The plain JSON value of a dataclass or NamedTuple, or of what they contain."""
    kind: Any = type(value)
    if _is_dataclass(kind):
        return {name: _encode_as(getattr(value, name), hint) for name, hint in _fields(kind).items()}
    if _is_named_tuple(kind):
        return [_encode_as(getattr(value, name), hint) for name, hint in _fields(kind).items()]
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
    arms = get_args(hint)
    if type(value) is int and float in (hint, *arms):
        return float(value)
    if get_origin(hint) is tuple:
        return [_encode_as(item, arms[0]) for item in value]
    return encode(value)


def _no_number(value: float) -> str:
    if math.isnan(value):
        raise CodecError("NaN is no measurement")
    return "inf" if value > 0 else "-inf"


# ---------------------------------------------------------------------------------------- decode


def decode(hint: Any, value: Any, where: str) -> Any:
    """A value of type `hint` from a JSON value. Raises CodecError that names the place."""
    return _decode(value, hint, where)


def decode_all(kind: type[T], value: Any, where: str) -> tuple[T, ...]:
    """As `decode`, for a list."""
    items = _expect(list, value, where)
    return tuple(_decode(item, kind, f"{where}[{index}]") for index, item in enumerate(items))


def _decode(value: Any, hint: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _decode_optional(value, hint, where)
    if origin is Literal:
        return _one_of(value, get_args(hint), where)
    if origin is tuple:
        return decode_all(get_args(hint)[0], value, where)
    if origin is not None and issubclass(origin, Mapping):
        item = get_args(hint)[1]
        return {k: _decode(v, item, f"{where}.{k}") for k, v in _expect(dict, value, where).items()}
    if _is_dataclass(hint) or _is_named_tuple(hint):
        return _decode_record(value, hint, where)
    if issubclass(hint, StrEnum):
        return hint(_one_of(value, [member.value for member in hint], where))
    return _decode_float(value, where) if hint is float else _expect(hint, value, where)


def _decode_record(value: Any, kind: Any, where: str) -> Any:
    fields = _fields(kind)
    if not _is_dataclass(kind):
        items = _expect(list, value, where)
        if len(items) != len(fields):
            raise CodecError(f"{where} must hold {len(fields)} values, not {len(items)}")
        value = dict(zip(fields, items, strict=True))
    value = _expect(dict, value, where)
    if unknown := sorted(value.keys() - fields.keys()):
        raise CodecError(f"{where} has an unknown key {unknown[0]!r}")
    if missing := [name for name in fields if name not in value]:
        raise CodecError(f"{where} has no {missing[0]!r}")
    return kind(**{name: _decode(value[name], hint, f"{where}.{name}") for name, hint in fields.items()})


def _decode_optional(value: Any, hint: Any, where: str) -> Any:
    (inner,) = (arm for arm in get_args(hint) if arm is not type(None))
    return None if value is None else _decode(value, inner, where)


def _decode_float(value: Any, where: str) -> float:
    if isinstance(value, str) and value in _INFINITE:
        return _INFINITE[value]
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:  # an int larger than the largest float
        number = math.nan
    if not math.isfinite(number):
        raise CodecError(f"{where} must be a number, not {value!r:.60}")
    return number


def _one_of(value: Any, allowed: Any, where: str) -> Any:
    if value not in allowed:
        raise CodecError(f"{where} must be one of {', '.join(map(str, allowed))}, not {value!r:.60}")
    return value


def _expect(kind: type[T], value: Any, where: str) -> T:
    """`value` if its type is exactly `kind`; a bool is not an int here."""
    if type(value) is not kind:
        raise CodecError(f"{where} must be {_WORDS[kind]}, not {value!r:.60}")
    return value


_WORDS: Final[dict[type, str]] = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
