"""An engine's reply to one sample, with its times. Pure. Nothing is repaired; departures are in `oddities` or `error`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gates.contracts.sample import Sample, TransportFault
from gates.reply.calls import ReplyCall
from gates.reply.parser import ReplyParser, ReportedError
from gates.reply.sentence import first_sentence


@dataclass(frozen=True, slots=True)
class ReplyTimes:
    """Nanoseconds from the request's first byte. `token` and `last`: generated text of any kind; `content`: its first visible
    character; `sentence`: when speech could begin. A whole reply has one time for everything.
    """

    headers: int | None = None
    role: int | None = None
    token: int | None = None
    reasoning: int | None = None
    content: int | None = None
    tool: int | None = None
    sentence: int | None = None
    last: int | None = None

    @property
    def visible(self) -> int | None:
        """The first content or tool call: time to first token (TTFT)."""
        times = [time for time in (self.content, self.tool) if time is not None]
        return min(times, default=None)


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one sample. `done`: [DONE], or one whole JSON body. `cached_tokens` is None if the engine does not report it."""

    status: int | None
    content: str = ""
    reasoning: str = ""
    calls: tuple[ReplyCall, ...] = ()
    finish_reason: str | None = None
    done: bool = False
    error: ReportedError | None = None
    fault: TransportFault | None = None
    usage: Mapping[str, Any] | None = None
    cached_tokens: int | None = None
    clocks: ReplyTimes = ReplyTimes()
    oddities: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the reply came to its end: with a finish_reason, without an error, and not truncated."""
        return self.finish_reason is not None and self.error is None and (self.done or self.fault is None)

    @property
    def completion_tokens(self) -> int | None:
        """As the engine reports; chunks cannot be counted, since one may hold several tokens."""
        return _count(self.usage, "completion_tokens")

    @property
    def prompt_tokens(self) -> int | None:
        """As the engine reports, cached tokens included."""
        return _count(self.usage, "prompt_tokens")


def read_reply(sample: Sample) -> Reply:
    """The reply in a sample, streamed or not, of any engine. Never raises."""
    reader = ReplyParser()
    reader.read(sample.reads)
    if sample.status not in (None, 200):
        reader.refuse(sample.status, b"".join(read.data for read in sample.reads))
    cached = _count(reader.usage, "prompt_tokens_details", "cached_tokens")
    return Reply(
        status=sample.status,
        content=_text(reader.content),
        reasoning=_text(reader.reasoning),
        calls=reader.calls.made,
        finish_reason=reader.finish_reason,
        done=reader.done,
        error=reader.error,
        fault=sample.fault,
        usage=reader.usage,
        cached_tokens=reader.cache_n if cached is None else cached,
        clocks=_times(reader, sample.headers_ns),
        oddities=tuple(dict.fromkeys(reader.oddities)),
    )


def _times(reader: ReplyParser, headers_ns: int | None) -> ReplyTimes:
    first = {kind: reader.first.get(kind) for kind in ("role", "token", "reasoning", "content", "tool")}
    return ReplyTimes(headers=headers_ns, **first, sentence=_sentence(reader), last=reader.last_ns)


def _sentence(reader: ReplyParser) -> int | None:
    """When the first sentence was known to be complete; the end of the reply also ends a sentence."""
    over = first_sentence("".join(text for _, text in reader.content))
    if over is None:
        return reader.finish_ns if "content" in reader.first else None
    for at_ns, text in reader.content:
        over -= len(text)
        if over <= 0:
            return at_ns
    return None


def _text(pieces: list[tuple[int, str]]) -> str:
    """The pieces as one text of UTF-8: halves of a surrogate pair that meet are joined, a lone half becomes U+FFFD."""
    text = "".join(text for _, text in pieces)
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _count(usage: Mapping[str, Any] | None, *path: str) -> int | None:
    """A count in the usage; None if it is absent or not a count."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
