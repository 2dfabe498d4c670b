"""Decodes plain values (from TOML or JSON) into frozen dataclasses, strictly. Pure.

The fields of a class are the allowed keys, and their type hints the allowed values; nothing is converted
silently. For an unknown key the nearest known one is suggested; a missing key is named; a wrong type is
reported with the expected one. Further checks go into a class's `__post_init__`, which raises
`DecodeError(key, why)`; the decoder adds the path of the enclosing table.

Supported hints: str, int, float, bool, Any, `X | None`, Literal, StrEnum, `tuple[X, ...]`, `Mapping[str, X]`,
dataclasses and NamedTuples.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from math import inf
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}
_LEAVES = frozenset((str, int, float, bool))
_INFINITE = {"inf": inf, "-inf": -inf}


class DecodeError(ValueError):
    """A key of a table that cannot be used, and why. `str()` gives the whole line."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.where, self.why = where, why


def read(cls: type[T], table: object, where: str = "") -> T:
    """Decode a TOML table into an instance of `cls`; a key that has a default may be absent. Raises DecodeError."""
    found: T = _Decoder("a table", complete=False).value(cls, table, where)
    return found


def decode(hint: Any, value: object, where: str = "") -> Any:
    """Decode a JSON value of which nothing may be left out, not even what has a default. Raises DecodeError.

    NamedTuples are arrays, and infinite floats, which JSON does not have, the texts "inf" and "-inf".
    """
    return _Decoder("an object", complete=True).value(hint, value, where)


def require_between(key: str, value: float, low: float, high: float) -> None:
    """Raise DecodeError for a number outside [low, high]; NaN is outside."""
    if not low <= value <= high:
        raise DecodeError(key, f"must be from {low:g} to {high:g}, not {value:g}")


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, or the list of all."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(names)}"


@cache
def is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


@cache
def _origin_and_args(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@cache
def field_hints(kind: Any) -> dict[str, Any]:
    """The type hint of every field of a dataclass or NamedTuple, in order."""
    hints = get_type_hints(kind)
    names = kind._fields if is_named_tuple(kind) else [field.name for field in fields(kind)]
    return {name: hints[name] for name in names}


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)


def _path(where: str, key: str) -> str:
    shown = key[:80] if key.isprintable() else ascii(key)[:80]
    return ".".join(part for part in (where, shown) if part)


@dataclass(frozen=True, slots=True)
class _Decoder:
    """table: what its format calls a table. complete: whether keys that have a default are required, too."""

    table: str
    complete: bool

    def value(self, hint: Any, value: Any, where: str) -> Any:
        if type(value) is hint and hint in _LEAVES:
            return value
        origin, args = _origin_and_args(hint)
        if hint is Any or (value is None and types.NoneType in args):
            return value
        if origin in (Union, types.UnionType):  # only X | None is used
            return self.value(next(a for a in args if a is not types.NoneType), value, where)
        if origin is Literal:
            return _one_of(value, args, where)
        if origin is tuple:
            items = enumerate(_expect(list, value, where))
            return tuple(self.value(args[0], item, f"{where}[{i}]") for i, item in items)
        if origin is not None and issubclass(origin, Mapping):
            table = self._mapping(value, where)
            return {key: self.value(args[1], item, _path(where, key)) for key, item in table.items()}
        if is_named_tuple(hint):
            return self._named_tuple(hint, _expect(list, value, where), where)
        if is_dataclass(hint):
            return self._record(hint, self._mapping(value, where), where)
        if issubclass(hint, StrEnum):
            return hint(_one_of(value, [member.value for member in hint], where))
        return self._float(value, where) if hint is float else _expect(hint, value, where)

    def _mapping(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise DecodeError(where, f"must be {self.table}, not {value!r:.60}")
        return value

    def _named_tuple(self, kind: Any, items: list[Any], where: str) -> Any:
        hints = field_hints(kind)
        if len(items) != len(hints):
            raise DecodeError(where, f"must hold {len(hints)} values, not {len(items)}")
        named = zip(hints.items(), items, strict=True)
        return kind(
            *(
                item  # without its place, which is for an error: most of a report are such values
                if type(item) is hint and hint in _LEAVES
                else self.value(hint, item, _path(where, name))
                for (name, hint), item in named
            )
        )

    def _record(self, kind: Any, table: dict[str, Any], where: str) -> Any:
        hints = field_hints(kind)
        for key in table:
            if key not in hints:
                raise DecodeError(_path(where, key), f"unknown key{nearest(key, hints)}")
        for name in hints:
            if name not in table and (self.complete or name in _required(kind)):
                raise DecodeError(_path(where, name), "is missing")
        values = {key: self.value(hints[key], value, _path(where, key)) for key, value in table.items()}
        try:
            return kind(**values)
        except DecodeError as refused:
            raise DecodeError(_path(where, refused.where), refused.why) from None

    def _float(self, value: Any, where: str) -> float:
        """An integer is a float, too, unless it is larger than the largest; a bool is not."""
        if self.complete and isinstance(value, str) and value in _INFINITE:
            return _INFINITE[value]
        if type(value) is not int:
            return _expect(float, value, where)
        try:
            return float(value)
        except OverflowError:
            raise DecodeError(where, f"must be a number, not {value!r:.60}") from None


def _one_of(value: Any, allowed: Sequence[Any], where: str) -> Any:
    if value not in allowed:
        raise DecodeError(where, f"must be one of {', '.join(map(str, allowed))}, not {value!r:.60}")
    return value


def _expect(kind: type[T], value: Any, where: str) -> T:
    """`value` if its type is exactly `kind`; a bool is no whole number."""
    if type(value) is not kind:
        raise DecodeError(where, f"must be {_KINDS[kind]}, not {value!r:.60}")
    return value
