"""The metadata of a GGUF file: what its header says, without the lists of its vocabulary.

The layout is little-endian (ggml's docs/gguf.md): magic, version, numbers of tensors and of pairs, then
the pairs, each a name, a type and a value.
"""

import struct
from pathlib import Path
from typing import BinaryIO

from deploy.errors import ArtefactError

Value = int | float | bool | str | tuple[int | float | bool, ...]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_NAME = 1 << 16
_LONGEST_KEPT = 4096
"""Arrays of numbers up to here are kept: a value for each layer. Longer ones are about the vocabulary."""


def read_metadata(path: Path) -> dict[str, Value]:
    """The pairs of the header but for arrays of texts and long ones.

    Raises:
        ArtefactError: it cannot be read, or is no GGUF of version 2 or 3.
    """
    try:
        with path.open("rb") as file:
            magic, version, _, pairs = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF" or version not in (2, 3):
                raise ArtefactError(f"{path} is not a GGUF of version 2 or 3")
            found = ((_text(file), _value(file)) for _ in range(pairs))
            return {name: value for name, value in found if value is not None}
    except (OSError, struct.error, UnicodeDecodeError, KeyError, ValueError) as error:
        raise ArtefactError(f"{path}: its header cannot be read ({error})") from None


def _number(file: BinaryIO, form: str) -> int | float | bool:
    size = struct.calcsize("<" + form)
    number: int | float | bool = struct.unpack("<" + form, file.read(size))[0]
    return number


def _text(file: BinaryIO) -> str:
    length = int(_number(file, "Q"))
    if length > _LONGEST_NAME:
        file.seek(length, 1)  # a chat template can be long, and nobody here wants it
        return ""
    return file.read(length).decode("utf-8")


def _value(file: BinaryIO) -> Value | None:
    kind = int(_number(file, "I"))
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        return _number(file, _SCALARS[kind])
    kind, length = int(_number(file, "I")), int(_number(file, "Q"))
    if kind == _STRING:
        for _ in range(length):
            file.seek(int(_number(file, "Q")), 1)
        return None
    form = _SCALARS[kind]
    if length > _LONGEST_KEPT:
        file.seek(struct.calcsize("<" + form) * length, 1)
        return None
    return tuple(_number(file, form) for _ in range(length))
