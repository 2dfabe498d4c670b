"""Tables read strictly into frozen dataclasses: their fields are the keys, their types the rules.

Pure. An unknown key names the nearest right one, a missing key is named, and a value of the wrong
type says what it has to be. What a type cannot say, a class says in `__post_init__` by raising
`Refused(key, why)`; the reader puts the table's path before it.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


class Refused(ValueError):
    """A key of a table that cannot be used, and why; `str` of it is the whole line."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.where, self.why = where, why


def read(cls: type[T], table: object, where: str = "") -> T:
    """The value that a table describes. Raises Refused with the key's dotted path."""
    if not isinstance(table, dict):
        raise Refused(where, "must be a table")
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise Refused(_path(where, key), f"unknown key{nearest(key, known)}")
    for name, field in known.items():
        if name not in table and _required(field):
            raise Refused(_path(where, name), "is missing")
    hints = get_type_hints(cls)
    values = {key: _value(hints[key], value, _path(where, key)) for key, value in table.items()}
    try:
        return cls(**values)
    except Refused as refused:
        raise Refused(_path(where, refused.where), refused.why) from None


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown word: the nearest known one, or all of them."""
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
            raise Refused(where, f"must be one of {', '.join(map(str, args))}, not {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise Refused(where, "must be a list")
        return tuple(_value(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise Refused(where, "must be a table")
        return {key: _value(args[1], item, _path(where, key)) for key, item in value.items()}
    if is_dataclass(hint):
        return read(hint, value, where)  # type: ignore[arg-type]
    return _plain(hint, value, where)


def _plain(hint: type, value: object, where: str) -> object:
    """A text, a number or a truth; a whole number is a number, and a truth is none."""
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise Refused(where, f"must be {_KINDS[hint]}, not {value!r}")
    return value
