"""Parses chat completions, streamed or not, in the variants that engines send. Pure.

vLLM calls it `reasoning`, llama-server `reasoning_content`. Times are taken from generated text only: a role delta or the usage
chunk is none (vLLM #15106). An event's time is that of the read that completed it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gates.contracts import strict_json
from gates.contracts.sample import TimedRead
from gates.reply.calls import CallAssembler
from gates.reply.sse import StreamEvent, stream_events

_DONE: Final = b"[DONE]"
_SHOWN: Final = 300  # characters of foreign text that a message quotes


@dataclass(frozen=True, slots=True)
class ReportedError:
    """An error that the engine reported instead of an answer or in the middle of one; `code` is its HTTP status, if any."""

    message: str
    code: int | None = None


class ReplyParser:
    """Parses one reply's reads. `content` and `reasoning` are pieces with their times in ns; `first` is the time of the first "role",
    "token", "reasoning", "content" and "tool".
    """

    def __init__(self) -> None:
        self.content: list[tuple[int, str]] = []
        self.reasoning: list[tuple[int, str]] = []
        self.oddities: list[str] = []
        self.calls = CallAssembler(self.oddities)
        self.first: dict[str, int] = {}
        self.last_ns: int | None = None
        self.finish_reason: str | None = None
        self.finish_ns: int | None = None
        self.usage: dict[str, Any] | None = None
        self.cache_n: int | None = None  # llama-server's field for cached tokens, in `timings`
        self.error: ReportedError | None = None
        self.done = False

    def read(self, reads: Sequence[TimedRead]) -> None:
        """Parse a body. Its first byte tells whether it is a stream, whatever was asked for."""
        body = b"".join(read.data for read in reads)
        if body.lstrip()[:1] in (b"{", b"<"):  # a proxy's HTML error page is not a stream either
            self._whole(StreamEvent(reads[-1].at_ns, body))
            return
        for frame in stream_events(reads):
            self._frame(frame)

    def refuse(self, status: int | None, body: bytes) -> None:
        """Record an error for a status other than 200, whatever the body says."""
        text = self.error.message if self.error else quote(body)
        self.error = ReportedError(text or f"HTTP {status} without a word", status)

    def _whole(self, frame: StreamEvent) -> None:
        document = self._json(frame.payload)
        if document is not None:
            self._chunk(document, frame.at_ns)
            self.done = self.error is None

    def _frame(self, frame: StreamEvent) -> None:
        payload = frame.payload.strip()
        if not frame.whole and payload != _DONE and not _is_json(payload):
            self.oddities.append("the stream ends inside an event")
        elif self.done and payload:
            self.oddities.append("something follows [DONE]")
        elif payload == _DONE:
            self.done = True
        elif payload:
            document = self._json(payload)
            if document is not None:
                self._chunk(document, frame.at_ns)

    def _json(self, payload: bytes) -> dict[str, Any] | None:
        document = _loads(payload)
        if isinstance(document, dict):
            return document
        self._fail(ReportedError(f"not a JSON object: {quote(payload)}"))
        return None

    def _fail(self, error: ReportedError) -> None:
        self.error = self.error or error  # the first error explains the others

    def _chunk(self, chunk: dict[str, Any], at_ns: int) -> None:
        if chunk.get("error") is not None:
            self._fail(read_error(chunk["error"]))
            return
        if isinstance(chunk.get("usage"), dict) and chunk["usage"]:
            self.usage = chunk["usage"]
        cached = _object(chunk.get("timings")).get("cache_n")
        if isinstance(cached, int):
            self.cache_n = cached
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if _object(choice).get("index", 0) == 0:
                self._choice(_object(choice), at_ns)
            else:
                self.oddities.append("a choice that was not asked for")

    def _choice(self, choice: dict[str, Any], at_ns: int) -> None:
        if "delta" in choice and "role" in _object(choice["delta"]):
            self.first.setdefault("role", at_ns)
        said = _object(choice.get("delta")) or _object(choice.get("message"))
        self._say("reasoning", self.reasoning, said.get("reasoning") or said.get("reasoning_content"), at_ns)
        self._say("content", self.content, said.get("content"), at_ns)
        calls = said.get("tool_calls")
        for position, delta in enumerate(calls if isinstance(calls, list) else ()):
            if self.calls.feed(position, _object(delta)):
                self._mark("tool", at_ns)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason, self.finish_ns = reason, at_ns

    def _say(self, kind: str, pieces: list[tuple[int, str]], text: Any, at_ns: int) -> None:
        if isinstance(text, str) and text:
            pieces.append((at_ns, text))
            blank = kind == "content" and not text.strip()  # white space after reasoning is not visible text
            self._mark("token" if blank else kind, at_ns)
        elif text:
            self._fail(ReportedError(f"{kind} is of type {type(text).__name__}, not a text"))

    def _mark(self, kind: str, at_ns: int) -> None:
        self.first.setdefault(kind, at_ns)
        self.first.setdefault("token", at_ns)
        self.last_ns = at_ns


def read_error(error: Any) -> ReportedError:
    """An engine's error in any of its forms: an object, a text, or something else."""
    if not isinstance(error, Mapping):
        return ReportedError(str(error))
    code = error.get("code")
    message = error.get("message") or error.get("detail") or "the engine reported an error"
    return ReportedError(str(message), code if isinstance(code, int) and code >= 400 else None)


def quote(data: bytes) -> str:
    """The beginning of foreign bytes on one line, for a message."""
    return " ".join(data[: 4 * _SHOWN].decode("utf-8", "replace").split())[:_SHOWN]


def _loads(payload: bytes) -> Any:
    """Parsed JSON, or None for invalid JSON, too deep nesting, or a number with too many digits."""
    try:
        return strict_json.loads(payload)
    except ValueError:
        return None


def _is_json(payload: bytes) -> bool:
    return _loads(payload) is not None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
