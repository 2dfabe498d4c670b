"""A GGUF's header: version, tensors, architecture, file type. Only these are read, and never a tensor.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A file that somebody sent is
not trusted (CVE-2025-53630): every length is bounded before it is used.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, Final

from deploy.doctor.evidence import Gguf

_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _LIST, _U32 = 8, 9, 4
_MAX_TEXT: Final = 16 * 2**20
_MAX_ITEMS: Final = 16 * 2**20
_MAX_KEYS: Final = 4096


class _Damaged(ValueError):
    """The header is not one."""


def gguf_header(path: Path) -> Gguf | None:
    """None if the file is no GGUF, or is cut off inside its header."""
    try:
        with path.open("rb") as file:
            return _header(file)
    except (OSError, _Damaged, struct.error, UnicodeDecodeError):
        return None


def _header(file: BinaryIO) -> Gguf:
    if _take(file, 4) != b"GGUF":
        raise _Damaged
    version, tensors, keys = struct.unpack("<IQQ", _take(file, 20))
    if keys > _MAX_KEYS:
        raise _Damaged
    found: dict[str, object] = {}
    for _ in range(keys):
        key = _text(file).decode()
        value = _value(file, _u32(file))
        if key in ("general.architecture", "general.file_type"):
            found[key] = value
    architecture, kind = found.get("general.architecture"), found.get("general.file_type")
    return Gguf(
        version=version,
        tensors=tensors,
        architecture=architecture if isinstance(architecture, str) else None,
        file_type=kind if isinstance(kind, int) else None,
    )


def _value(file: BinaryIO, kind: int) -> object:
    """A text or a u32; everything else is passed over."""
    if kind == _TEXT:
        return _text(file).decode("utf-8", "replace")
    if kind == _U32:
        return _u32(file)
    if kind == _LIST:
        _skip_list(file)
    elif kind in _SIZES:
        _take(file, _SIZES[kind])
    else:
        raise _Damaged
    return None


def _skip_list(file: BinaryIO) -> None:
    kind, count = _u32(file), struct.unpack("<Q", _take(file, 8))[0]
    if count > _MAX_ITEMS or kind == _LIST:
        raise _Damaged
    if kind == _TEXT:
        for _ in range(count):
            _text(file)
    elif kind in _SIZES:
        file.seek(_SIZES[kind] * count, 1)
    else:
        raise _Damaged


def _text(file: BinaryIO) -> bytes:
    (size,) = struct.unpack("<Q", _take(file, 8))
    if size > _MAX_TEXT:
        raise _Damaged
    return _take(file, size)


def _u32(file: BinaryIO) -> int:
    return int.from_bytes(_take(file, 4), "little")


def _take(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise _Damaged
    return data
