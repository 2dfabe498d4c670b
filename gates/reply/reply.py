"""What an engine said to one sample, and when. Values, and the way to them: `read_reply`. Pure.

Nothing is repaired: arguments stay the text that came, tags stay in the content, and what is not as
the protocol has it is named in `oddities` or `error`. `gates/reply/reader.py` does the reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gates.contracts.sample import Fault, Sample
from gates.reply.reader import Call as Call
from gates.reply.reader import EngineError as EngineError
from gates.reply.reader import Reader
from gates.reply.sentence import first_sentence


@dataclass(frozen=True, slots=True)
class Clocks:
    """Nanoseconds from the request's first byte; None for what did not happen.

    `token` is the first generated text of any kind and `last` the last; `reasoning`, `content` and
    `tool` are the first of their kind, where content begins with its first visible character;
    `sentence` is when a voice could begin to speak. A whole reply says everything at once.
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
        """First content or tool call: what the seeds call TTFT."""
        times = [time for time in (self.content, self.tool) if time is not None]
        return min(times, default=None)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for one sample.

    `done`: the stream's [DONE] was there, or the body was one whole JSON reply. `oddities` are
    departures from the protocol that lost nothing. `cached_tokens` is None where an engine does not
    say (vLLM says it with --enable-prompt-tokens-details only).
    """

    status: int | None
    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    done: bool = False
    error: EngineError | None = None
    fault: Fault | None = None
    usage: Mapping[str, Any] | None = None
    cached_tokens: int | None = None
    content_chunks: int = 0
    clocks: Clocks = Clocks()
    oddities: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether it came to its end: with a finish_reason, without an error, and not cut off."""
        return self.finish_reason is not None and self.error is None and (self.done or self.fault is None)

    @property
    def completion_tokens(self) -> int | None:
        """By the engine's own count; the only count there is, for a chunk may hold several."""
        return _count(self.usage, "completion_tokens")

    @property
    def prompt_tokens(self) -> int | None:
        """By the engine's own count, the cached ones included."""
        return _count(self.usage, "prompt_tokens")

    @property
    def reasoning_tokens(self) -> int | None:
        """As vLLM counts them when it has a reasoning parser; llama-server does not say."""
        return _count(self.usage, "completion_tokens_details", "reasoning_tokens")


def read_reply(sample: Sample) -> Reply:
    """The reply in a sample: streamed or whole, and from any of the engines. It never raises."""
    reader = Reader()
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
        content_chunks=len(reader.content),
        clocks=_clocks(reader, sample.headers_ns),
        oddities=tuple(dict.fromkeys(reader.oddities)),
    )


def _clocks(reader: Reader, headers_ns: int | None) -> Clocks:
    return Clocks(
        headers=headers_ns,
        role=reader.first.get("role"),
        token=reader.first.get("token"),
        reasoning=reader.first.get("reasoning"),
        content=reader.first.get("content"),
        tool=reader.first.get("tool"),
        sentence=_sentence(reader),
        last=reader.last_ns,
    )


def _sentence(reader: Reader) -> int | None:
    """When the first sentence was known to be over; the reply's end is the end of its last one."""
    over = first_sentence("".join(text for _, text in reader.content))
    if over is None:
        return reader.finish_ns if "content" in reader.first else None
    for at_ns, text in reader.content:
        over -= len(text)
        if over <= 0:
            return at_ns
    return None


def _text(pieces: list[tuple[int, str]]) -> str:
    """The pieces as one text that can be written as UTF-8 again.

    JSON's \\uD83D may come in one chunk and \\uDE00 in the next: halves that meet become one
    character, a half that stays alone becomes U+FFFD.
    """
    text = "".join(text for _, text in pieces)
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _count(usage: Mapping[str, Any] | None, *path: str) -> int | None:
    """A count in the usage; None when it is not there, or no count."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
