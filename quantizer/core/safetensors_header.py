"""The header of a safetensors file, read and written without torch and without its tensors.

Eight bytes with the length of the header, little-endian; the header, a JSON object of {name: {"dtype", "shape",
"data_offsets"}}, padded with spaces to eight bytes; the tensors (huggingface/safetensors, README).
"""

import json
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gates.contracts import strict_json
from quantizer.core.errors import SourceError

MAX_HEADER: Final = 100_000_000
"""The maximum size of a header in bytes, as in the format's own reader."""
SIZES: Final = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U8": 1, "I8": 1, "BOOL": 1,
}  # fmt: skip
"""Bytes per number."""
LONGEST_NAME: Final = 255
"""Bytes of a file's name: asked for a longer one, file systems raise."""


@dataclass(frozen=True, slots=True)
class HeaderEntry:
    """A tensor of a file. dtype: as safetensors writes it. bytes: its size."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


def is_file_name(name: object) -> bool:
    """Whether this may be the name of a file in a folder: no path, and no longer than file systems take."""
    if not isinstance(name, str) or name in ("", ".", "..") or "\0" in name:
        return False
    return Path(name).name == name and len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME


def read_header(path: Path) -> dict[str, HeaderEntry]:
    """What a file holds, by name. Raises SourceError; nothing is read for a length that is only claimed."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size - 8
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(size, MAX_HEADER):
                raise ValueError(f"its header claims {length} bytes of {max(size, 0)}")
            document = strict_json.loads(file.read(length))
        return {n: _entry(part, size - length) for n, part in document.items() if n != "__metadata__"}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise SourceError(f"{path}: its header cannot be read ({error})") from None


def header_text(tensors: Iterable[tuple[str, str, Sequence[int], int]]) -> bytes:
    """The beginning of a file with these tensors (name, type, shape, bytes) in this order, without gaps."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype, shape, size in tensors:
        begin, end = end, end + size
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _entry(part: Any, most: int) -> HeaderEntry:
    """Raises ValueError, LookupError or TypeError for an entry that does not fit a file of `most` bytes of tensors."""
    begin, end = part["data_offsets"]
    shape, dtype = part["shape"], part["dtype"]
    whole = all(type(number) is int for number in (begin, end, *shape))
    if not whole or not 0 <= begin <= end <= most or any(number < 0 for number in shape):
        raise ValueError("a tensor lies outside of the file")
    if dtype in SIZES and math.prod(shape) * SIZES[dtype] != end - begin:
        raise ValueError("a tensor's shape does not fit its bytes")
    return HeaderEntry(str(dtype), tuple(shape), end - begin)
