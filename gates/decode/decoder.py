"""Reads plain values (from TOML or JSON) into dataclasses by `msgspec.convert`, strictly. Pure.

Fields are the allowed keys, type hints the allowed values. Further checks go into `__post_init__`, which raises
`DecodeError(key, why)`; the decoder adds the path of the enclosing table. An error is one line.
"""

import atexit
import difflib
import gc
import json
import threading
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta as Meta  # for the values of contracts, which name no library

T = TypeVar("T")
NOT_BLANK: Final = r"\S"
END: Final = r"\Z"
Text = Annotated[str, Meta(pattern=NOT_BLANK)]
"""A text with something in it."""

REFUSED: Final = (msgspec.ValidationError, OverflowError, UnicodeEncodeError)
"""What `msgspec.convert` raises; the last two for a number beyond every double and for a lone surrogate."""

_PREPARING: Final = threading.Lock()
atexit.register(
    gc.freeze
)  # msgspec 0.22 frees a dataclass's types twice, and crashes, if the last collection clears them

_KINDS: Final = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", tuple: "a list", Mapping: "a table"
}  # fmt: skip


class DecodeError(ValueError):
    """A key of a table that cannot be used, and why. `str()` gives the whole line."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.where, self.why = where, why


def read(hint: type[T], value: object, where: str = "") -> T:
    """Decode a table of TOML or JSON into a dataclass; a key with a default may be absent. Raises DecodeError, at the innermost fault."""
    made: T = _read(hint, value, where)
    return made


def _read(hint: Any, value: Any, where: str) -> Any:
    """msgspec ignores keys that no field has, and does not name those of a mapping: what has records, or does not fit, is read from inside."""
    if not _has_records(hint):
        with suppress(*REFUSED):
            return convert(value, hint)
    kind, made = _unwrapped(hint), value
    if isinstance(value, dict) and is_dataclass(kind):
        return _record(kind, value, where)
    if isinstance(value, dict) and get_origin(kind) is Mapping:
        below = get_args(kind)[1]
        made = {key: _read(below, item, _path(where, key)) for key, item in value.items()}
    elif isinstance(value, list) and get_origin(kind) is tuple:
        made = [_read(get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(value)]
    try:
        return convert(made, hint)
    except REFUSED:
        raise DecodeError(where, f"must be {_wanted(hint)}, not {value!r:.60}") from None


def _record(kind: Any, table: Mapping[str, Any], where: str) -> Any:
    hints = field_hints(kind)
    for key in table:
        if key not in hints:
            raise DecodeError(_path(where, key), f"unknown key{nearest(str(key), hints)}")
    for field in fields(kind):
        if field.name not in table and field.default is field.default_factory is MISSING:
            raise DecodeError(_path(where, field.name), "is missing")
    made = {key: _read(hints[key], item, _path(where, key)) for key, item in table.items()}
    try:
        return kind(**made)
    except DecodeError as refused:
        raise DecodeError(_path(where, refused.where), refused.why) from None


def convert(value: object, hint: Any) -> Any:
    """`msgspec.convert`, safe in several threads. Raises msgspec.ValidationError, OverflowError, UnicodeEncodeError."""
    _prepare(hint)
    return msgspec.convert(value, hint)


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
def _prepare(hint: Any) -> None:
    """Let one thread at a time read the fields of a dataclass: msgspec 0.22 shows others a half-read one, and they crash."""
    with _PREPARING:
        msgspec.json.Decoder(hint)


def _wanted(hint: Any) -> str:
    kind = _unwrapped(hint)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    if is_dataclass(kind):
        return "a table"
    bounds = "".join(map(_bounds, getattr(_some(hint), "__metadata__", ())))
    return f"{_KINDS.get(get_origin(kind) or kind, str(kind))}{bounds}"


def _bounds(meta: Meta) -> str:
    """The range that a number may have; of a list or text, that it may not be empty, or what it must match."""
    limits = {"of at least": meta.ge, "above": meta.gt, "and below": meta.lt, "and at most": meta.le}
    said = [f" {word} {limit}" for word, limit in limits.items() if limit is not None]
    if meta.pattern and meta.pattern != NOT_BLANK:
        return f" that matches {meta.pattern.removeprefix('^').removesuffix(END)}"
    return "".join(said) or (" that is not empty" if meta.min_length or meta.pattern else "")


def _unwrapped(hint: Any) -> Any:
    """X for X | None and for Annotated[X, ...]."""
    hint = _some(hint)
    return hint.__origin__ if hasattr(hint, "__metadata__") else hint


def _some(hint: Any) -> Any:
    """X for X | None."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(arm for arm in get_args(hint) if arm is not types.NoneType)
    return hint


@cache
def _has_records(hint: Any) -> bool:
    return is_dataclass(hint) or any(map(_has_records, get_args(hint)))


@cache
def field_hints(kind: Any) -> dict[str, Any]:
    """The type hint of every field of a dataclass, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _path(where: str, key: str) -> str:
    shown = key[:80] if key.isprintable() else ascii(key)[:80]
    return ".".join(part for part in (where, shown) if part)


def canonical(value: Any) -> bytes:
    """Canonical JSON as UTF-8: sorted keys, no spaces, only necessary escapes. Raises DecodeError for NaN, infinity and surrogates."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError) as error:
        raise DecodeError("", f"cannot be written as JSON ({error})") from None


encode: Final = msgspec.to_builtins
"""The plain JSON value of a dataclass or NamedTuple."""
