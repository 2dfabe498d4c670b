"""A picture and a sound to try an engine with. Pure."""

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from deploy.engine.spec import Medium

_SIDE = 64
_RATE = 16000


def _grey() -> str:
    """A small grey square as PNG; not one pixel, which some processors cannot cut into patches."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\x80" * 3 * _SIDE) * _SIDE
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    return base64.b64encode(png).decode()


def _silence() -> str:
    """Half a second of nothing as WAV: 16 bits, one channel."""
    data = bytes(_RATE)
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, _RATE, 2 * _RATE, 2, 16)
    wave = b"WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data
    return base64.b64encode(struct.pack("<4sI", b"RIFF", len(wave)) + wave).decode()


SAMPLES: Mapping[Medium, Mapping[str, Any]] = {
    "image": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_grey()}"}},
    "audio": {"type": "input_audio", "input_audio": {"data": _silence(), "format": "wav"}},
}
"""One of each, as OpenAI's API has them."""
