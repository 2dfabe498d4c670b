"""Translates an engine's error for the caller, whether it came as a status or in the stream. Pure.

An engine's error text reaches a caller only with a 4xx that the caller can correct, cleaned by `engine_words`: it may hold
prompts, paths and addresses. For every other fault the caller gets the gateway's message, the status, and the engine's code
unless the gateway has the same one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from app.errors import tree
from app.errors.engine_words import MAX_WORDS, fit_for_callers
from app.errors.tree import ContextExceeded, EngineBroke, EngineDown, EngineRefused, MannersError
from gates.reply.chunks import decode_any, read_error
from gates.reply.events import Broken

_THE_CALLERS = (400, 409, 413, 415, 422, 451)
"""Statuses that a caller can correct by another request. Any other 4xx is about the engine's key, account, address or
connection (401, 402, 404, 405, 407, 408, ...): another engine may do better, and the text is for the engine's operator."""
_NO_SUCH_API = (404, 405, 501)
_OF_CONTEXT = ("context_length_exceeded", "exceed_context_size_error")
_CONTEXT_WORDS = (
    "context size has been exceeded",  # llama-server, 500: the pool that its slots share is full
    "exceeds the available context size",  # llama-server, 400: the prompt
    "is too large to process",  # llama-server, 500: a text to embed
    "maximum context length",  # vLLM and OpenAI, 400: the prompt, or it and max_tokens together
    "longer than the maximum model length",  # vLLM: the prompt
    "longer than the model's context length",  # SGLang: the prompt
    "too long to fit into the model",  # vLLM
    "context length exceeded",
    "exceeds the context window",
    "prompt is too long",
)
"""How engines say that a request is larger than their context: as a status, or in the stream."""
_TOO_LONG = (
    "the conversation and its reply are longer than the engine's context: send less, or a smaller max_tokens"
)
_NO_REASON = "the engine refused the request without a reason that callers may see; its log may have one"
_OURS = tree.CODES | tree.UPSTREAM_CODES | {"total_timeout"}
"""An engine's fault never carries a code of the gateway's own, or it would not count against the engine."""
_EVERY_ENGINE_HAS = "/v1/chat/completions"
_OUR_BUG = MannersError.code


def from_status(status: int, body: bytes, path: str = _EVERY_ENGINE_HAS) -> MannersError:
    """The error for a reply whose status is not 200."""
    # An engine without embeddings is healthy: a request for some must not open its breaker.
    if status in _NO_SUCH_API and path != _EVERY_ENGINE_HAS:
        return EngineRefused(f"this model's engine does not serve {path}", "unsupported_by_engine")
    said = _read(body)
    return _meaning(status, said.message, said.code)


def from_stream(broken: Broken) -> MannersError:
    """The error for a reply that was cut off before the caller was shown any of it."""
    if broken.by_engine and broken.status:
        return _meaning(broken.status, broken.message, broken.code)
    return in_stream(broken)


def in_stream(broken: Broken) -> MannersError:
    """The error for a reply that was cut off after the caller was shown some of it."""
    if not broken.by_engine:
        return EngineBroke(broken.message, broken.code)
    if is_context_exceeded(broken.message, broken.code):
        return ContextExceeded(_TOO_LONG)
    status = f" {broken.status}" if broken.status else ""
    word = "engine_error" if broken.code in _OURS else broken.code
    return EngineBroke(f"the engine reported an error{status} in its stream", word)


def is_context_exceeded(message: str, code: str = "") -> bool:
    """Whether an engine's error says that a request is larger than its context, or than what is left of it."""
    said = message[:MAX_WORDS].lower()
    return code in _OF_CONTEXT or any(words in said for words in _CONTEXT_WORDS)


def as_upstream_error(error: BaseException) -> MannersError:
    """The engine's fault, to the caller and the breaker: our parser failed on its reply. `__cause__` is for the log."""
    return _caused(EngineBroke("the engine's reply could not be read", "upstream_malformed"), error)


def as_internal_error(error: BaseException) -> MannersError:
    """A bug of ours: a reply could not be written. `__cause__` is for the log."""
    return _caused(MannersError(tree.INTERNAL), error)


def _caused(told: MannersError, error: BaseException) -> MannersError:
    told.__cause__ = error
    return error if isinstance(error, MannersError) else told


@contextmanager
def route_errors_to(fail: Callable[[BaseException], None]) -> Iterator[None]:
    """Wraps a callback of the event loop that serves one exchange: its exceptions go to `fail`."""
    try:
        yield
    except Exception as error:
        fail(error)


def forget_frames(error: BaseException | None) -> None:
    """Drop the frames of a reported error and of its causes: they hold the request, and only the collector would free them."""
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            left += (one.__cause__, one.__context__)


def bug_behind(error: BaseException | None) -> BaseException | None:
    """The original error behind `as_upstream_error` or `as_internal_error`; None for any other fault."""
    if isinstance(error, MannersError) and error.code in ("upstream_malformed", _OUR_BUG):
        return error.__cause__
    return None


def _read(body: bytes) -> Broken:
    try:
        data: Any = decode_any(body)
        return read_error(data.get("error", data) if isinstance(data, dict) else data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return read_error(body.decode("utf-8", "replace"))
    except RecursionError:  # msgspec's, and str's of what it built
        return read_error("")


def _meaning(status: int, message: str, code: str) -> MannersError:
    if status in (429, 503):
        return EngineDown("the engine takes no requests now: try again", "engine_busy")
    is_the_callers = status in _THE_CALLERS
    if (is_the_callers or status >= 500) and is_context_exceeded(message, code):
        return ContextExceeded(_TOO_LONG, shared=status >= 500)
    if is_the_callers:
        word = "engine_error" if code == _OUR_BUG else code
        return EngineRefused(fit_for_callers(message) or _NO_REASON, word, status=status)
    return EngineBroke(f"the engine answered {status}", "upstream_status")
