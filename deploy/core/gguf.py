"""Reads the metadata in a GGUF file's header, without the vocabulary (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

A header is untrusted: its sizes are checked against the file's size and `MAX_HEADER` before anything is read or skipped.
"""

import struct
from pathlib import Path
from typing import BinaryIO, Final

from deploy.core.errors import WeightsError

Value = int | float | bool | str | tuple[int | float | bool, ...]

MAX_HEADER: Final = 256 << 20
"""The most bytes of a header that are read or skipped. A vocabulary of 250,000 tokens with its merges takes 12 MB."""
MAX_PAIRS: Final = 1 << 16
MAX_ARRAY: Final = 1 << 24
"""The most items of an array. The largest vocabularies have a million tokens."""

_SCALARS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_LONGEST_NAME: Final = 1 << 16
_LONGEST_KEPT: Final = 4096
"""The longest array of numbers that is kept (a value for each layer). Longer ones belong to the vocabulary."""


def read_metadata(path: Path) -> dict[str, Value]:
    """The header's pairs, without arrays of texts and long arrays. Raises WeightsError."""
    try:
        with path.open("rb") as file:
            return _pairs(_Header(file, min(path.stat().st_size, MAX_HEADER)))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path}: its header cannot be read ({error})") from None


class _Header:
    """Reads at most `left` bytes from the start of a file. Raises ValueError beyond them."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file, self._left = file, left

    def take(self, size: int) -> bytes:
        self._spend(size)
        data = self._file.read(size)
        if len(data) != size:
            raise ValueError("it ends in the middle of its header")
        return data

    def skip(self, size: int) -> None:
        self._spend(size)
        self._file.seek(size, 1)

    def _spend(self, size: int) -> None:
        if size > self._left:
            raise ValueError(f"it states a length of {size} bytes, and only {self._left} are left")
        self._left -= size

    def number(self, form: str) -> int | float | bool:
        number: int | float | bool = struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]
        return number

    def count(self, form: str, most: int, what: str) -> int:
        count = int(self.number(form))
        if count > most:
            raise ValueError(f"it states {count} {what}, and at most {most} are read")
        return count


def _pairs(header: _Header) -> dict[str, Value]:
    magic, version, _ = struct.unpack("<4sIQ", header.take(16))
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError("it is not a GGUF of version 2 or 3")
    found: dict[str, Value | None] = {}
    for _ in range(header.count("Q", MAX_PAIRS, "pairs")):
        name = header.take(header.count("Q", _LONGEST_NAME, "bytes of a name")).decode("utf-8")
        if name in found:
            raise ValueError(f"{name[:80]!r} is there twice")
        found[name] = _value(header)
    return {name: value for name, value in found.items() if value is not None}


def _value(header: _Header) -> Value | None:
    kind = int(header.number("I"))
    if kind == _STRING:
        return _text(header)
    if kind != _ARRAY:
        return header.number(_form(kind))
    kind, length = int(header.number("I")), header.count("Q", MAX_ARRAY, "items of an array")
    if kind == _STRING:
        for _ in range(length):
            header.skip(int(header.number("Q")))
        return None
    form = _form(kind)
    if length > _LONGEST_KEPT:
        header.skip(struct.calcsize("<" + form) * length)
        return None
    return tuple(header.number(form) for _ in range(length))


def _form(kind: int) -> str:
    if kind not in _SCALARS:
        raise ValueError(f"it has a value of unknown type {kind}")
    return _SCALARS[kind]


def _text(header: _Header) -> str:
    length = int(header.number("Q"))
    if length > _LONGEST_NAME:
        header.skip(length)  # a chat template can be long, and is not used
        return ""
    return header.take(length).decode("utf-8")
