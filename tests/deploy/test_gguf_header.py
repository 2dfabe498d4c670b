"""A GGUF header that lies: one error, and never more work than the file has bytes."""

import struct
from pathlib import Path
from typing import Any

import pytest

from deploy.core.errors import WeightsError
from deploy.core.gguf import read_metadata

HUGE = 2**64 - 1


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(pairs: int, *parts: bytes) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, pairs) + b"".join(parts)


def array(kind: int, length: int, *parts: bytes) -> bytes:
    return text(b"a") + struct.pack("<IIQ", 9, kind, length) + b"".join(parts)


TRUE = struct.pack("<IB", 7, 1)

LIES = {
    "pairs": (header(HUGE), "pairs"),
    "pairs that are not there": (header(9), "a length of 8 bytes"),
    "a name's length": (header(1, struct.pack("<Q", HUGE)), "bytes of a name"),
    "a text's length": (header(1, text(b"a"), struct.pack("<IQ", 8, HUGE)), "bytes, and only"),
    "a negative length": (header(1, text(b"a"), struct.pack("<Iq", 8, -1)), "bytes, and only"),
    "an array of texts": (header(1, array(8, HUGE)), "items of an array"),
    "an array of numbers": (header(1, array(4, HUGE)), "items of an array"),
    "an array beyond the end": (header(1, array(4, 1 << 20)), "bytes, and only"),
    "a text in an array": (header(1, array(8, 1, struct.pack("<Q", 2**63))), "bytes, and only"),
    "an array of arrays": (header(1, array(9, 1)), "type 9"),
    "an unknown type": (header(1, text(b"a"), struct.pack("<I", 77)), "type 77"),
    "a name twice": (header(2, text(b"a"), TRUE, text(b"a"), TRUE), "twice"),
    "a name that is no UTF-8": (header(1, text(b"\xff"), TRUE), "decode"),
    "another version": (struct.pack("<4sIQQ", b"GGUF", 9, 0, 0), "version"),
}


@pytest.mark.parametrize(("data", "why"), LIES.values(), ids=LIES)
def test_a_header_that_lies_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=why):
        read_metadata(path)


def test_a_sound_header_is_read_without_its_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    parts: list[Any] = [
        text(b"on"), TRUE, text(b"name"), struct.pack("<I", 8), text(b"annie"), array(8, 2, text(b"x"), text(b"yy")),
        text(b"heads"), struct.pack("<IIQII", 9, 4, 2, 8, 9),
    ]  # fmt: skip
    path.write_bytes(header(4, *parts))
    assert read_metadata(path) == {"on": True, "name": "annie", "heads": (8, 9)}
