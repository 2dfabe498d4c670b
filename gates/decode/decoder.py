"""Decodes plain tables (from TOML or JSON) into frozen dataclasses, strictly. Pure.

The fields of a class are the allowed keys, and their type hints the allowed values. For an unknown
key the nearest known one is suggested; a missing key is named; a wrong type is reported with the
expected one. Further checks go into a class's `__post_init__`, which raises `DecodeError(key, why)`;
the decoder adds the path of the enclosing table.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


class DecodeError(ValueError):
    """A key of a table that cannot be used, and why. `str()` gives the whole line."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.where, self.why = where, why


def read(cls: type[T], table: object, where: str = "") -> T:
    """Decode a table into an instance of `cls`. Raises DecodeError with the key's dotted path."""
    if not isinstance(table, dict):
        raise DecodeError(where, "must be a table")
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise DecodeError(_path(where, key), f"unknown key{nearest(key, known)}")
    for name, field in known.items():
        if name not in table and _required(field):
            raise DecodeError(_path(where, name), "is missing")
    hints = get_type_hints(cls)
    values = {key: _value(hints[key], value, _path(where, key)) for key, value in table.items()}
    try:
        return cls(**values)
    except DecodeError as refused:
        raise DecodeError(_path(where, refused.where), refused.why) from None


def require_between(key: str, value: float, low: float, high: float) -> None:
    """Raise DecodeError for a number outside [low, high]; NaN is outside."""
    if not low <= value <= high:
        raise DecodeError(key, f"must be from {low:g} to {high:g}, not {value:g}")


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, or the list of all."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(names)}"


def _path(where: str, key: str) -> str:
    return ".".join(part for part in (where, key) if part)


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _value(hint: Any, value: object, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):  # only X | None is used
        return _value(next(a for a in args if a is not types.NoneType), value, where)
    if origin is Literal:
        if value not in args:
            raise DecodeError(where, f"must be one of {', '.join(map(str, args))}, not {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise DecodeError(where, "must be a list")
        return tuple(_value(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise DecodeError(where, "must be a table")
        return {key: _value(args[1], item, _path(where, key)) for key, item in value.items()}
    if is_dataclass(hint):
        return read(hint, value, where)  # type: ignore[arg-type]
    return _plain(hint, value, where)


def _plain(hint: type, value: object, where: str) -> object:
    """A scalar of exactly the hinted type; an integer is also accepted as a float, and a bool is not a number."""
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise DecodeError(where, f"must be {_KINDS[hint]}, not {value!r}")
    return value
