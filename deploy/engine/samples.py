"""A picture and a sound to try an engine with."""

import base64
import io
import wave
from collections.abc import Mapping
from typing import Any, Final

from deploy.engine.spec import Medium

_GREY: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAwElEQVR4nNXOQREAAAyDMKRX+kTw4BYFYc9RByzqgEUdsKgDFnXA"
    "og5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y1AGLOmBRByzq"
    "gEUdsKgDFnXAog5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y"
    "1AHrAB8+AWlViFU0AAAAAElFTkSuQmCC"
)
"""A grey square of 64 pixels as PNG: some processors cannot cut a single pixel into patches."""


def _silence() -> str:
    """Half a second of nothing as WAV: 16 bits, one channel."""
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(bytes(16000))
    return base64.b64encode(out.getvalue()).decode()


SAMPLES: Final[Mapping[Medium, Mapping[str, Any]]] = {
    "image": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_GREY}"}},
    "audio": {"type": "input_audio", "input_audio": {"data": _silence(), "format": "wav"}},
}
"""One of each, as OpenAI's API has them."""
