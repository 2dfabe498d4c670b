"""What an engine's error means to the caller, whether it came as a status or in the stream. Pure."""

from typing import Any

import msgspec

from app.errors import EngineBroke, EngineDown, EngineRefused, MannersError
from app.stream.chunks import read_error
from app.stream.events import Broken

_NOT_THE_CALLERS = (401, 403, 404, 407)
"""The engine does not know us, or is not where we think: the caller can do nothing about it."""


_NO_SUCH_API = (404, 405, 501)
_EVERY_ENGINE_HAS = "/v1/chat/completions"


def from_status(status: int, body: bytes, path: str = _EVERY_ENGINE_HAS) -> MannersError:
    """The error for a reply whose status is not 200.

    An engine that has no embeddings is well: whoever asks for some must not get it shunned.
    """
    if status in _NO_SUCH_API and path != _EVERY_ENGINE_HAS:
        return EngineRefused(f"this model's engine does not serve {path}", "unsupported_by_engine")
    try:
        data: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        data = body[:200].decode("utf-8", "replace")
    said = read_error(data.get("error", data) if isinstance(data, dict) else data)
    return _meaning(status, said.message, said.code)


def from_stream(broken: Broken) -> MannersError:
    """The error for a reply that was broken off before the caller was shown anything of it."""
    if broken.status:
        return _meaning(broken.status, broken.message, broken.code)
    return EngineBroke(broken.message, broken.code)


def _meaning(status: int, message: str, code: str) -> MannersError:
    if status in (429, 503):
        return EngineDown(message or "the engine takes no requests now", "engine_busy")
    if 400 <= status < 500 and status not in _NOT_THE_CALLERS:
        return EngineRefused(message or "the engine refused the request", code, status=status)
    return EngineBroke(f"the engine answered {status}: {message[:200]}", "upstream_status")
