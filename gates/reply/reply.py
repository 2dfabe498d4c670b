"""An engine's reply to one sample. An event's time is that of the read that completed it. Pure; repairs nothing.

Times are taken from generated text only: a role delta or the usage chunk is none (vLLM #15106).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gates.contracts.sample import Sample, TimedRead, TransportFault
from gates.reply.chunks import MalformedChunk, parse_payload
from gates.reply.events import Broken, CallArguments, CallStart, Done, Event, Finish, Text, Thought, Usage
from gates.reply.sse import SSEDecoder


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A tool call of a reply: `arguments` is the raw text, whether or not it is JSON."""

    index: int
    id: str | None
    name: str
    arguments: str


def join_calls(events: Iterable[CallStart | CallArguments]) -> tuple[ReplyCall, ...]:
    """The calls that these events of one reply make. Arguments that no name came before are a call without a name."""
    calls: list[tuple[CallStart, list[str]]] = []
    last: dict[int, tuple[CallStart, list[str]]] = {}
    for event in events:
        call = last.get(event.index)
        if call is None or (isinstance(event, CallStart) and not _repeats(event, *call)):
            start = event if isinstance(event, CallStart) else CallStart(event.choice, event.index, "")
            call = last[event.index] = (start, [])
            calls.append(call)
        if isinstance(event, CallArguments):
            call[1].append(event.fragment)
    return tuple(ReplyCall(start.index, start.id, start.name, "".join(said)) for start, said in calls)


def _repeats(again: CallStart, start: CallStart, fragments: Sequence[str]) -> bool:
    """Whether a name under an index in use is the same call's: some servers write it into every delta, others send several calls under one."""
    if again.name != start.name or again.id not in (None, start.id):
        return False
    try:
        return not isinstance(json.loads("".join(fragments)), dict)
    except (ValueError, RecursionError):
        return True


SENTENCE_END: Final = re.compile(r"[.!?।…][\"'”’)\]]{0,4}\s")  # "3.5" does not end at the point


_SHOWN: Final = 300  # characters of foreign text that a message quotes

_TimedEvent = tuple[int, Event]
"""An event, and the time in ns of the read that completed it."""


@dataclass(frozen=True, slots=True)
class ReplyTimes:
    """Nanoseconds from the request's first byte. `token` and `last`: generated text of any kind; `content`: its first visible
    character; `sentence`: when speech could begin. A whole reply has one time for everything.
    """

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
    """The reply to one sample. `done`: [DONE], or one whole JSON body."""

    status: int | None
    content: str = ""
    reasoning: str = ""
    calls: tuple[ReplyCall, ...] = ()
    finish_reason: str | None = None
    done: bool = False
    error: Broken | None = None
    fault: TransportFault | None = None
    usage: Mapping[str, Any] | None = None
    clocks: ReplyTimes = ReplyTimes()

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

    @property
    def cached_tokens(self) -> int | None:
        """None if the engine does not report it."""
        return _count((self.usage or {}).get("prompt_tokens_details"), "cached_tokens")


def read_reply(sample: Sample) -> Reply:
    """The reply in a sample, streamed or not, of any engine. Never raises."""
    return read_body(sample.reads, sample.status, sample.fault)


def read_heard(sample: Sample) -> Reply:
    """The reply as a caller of the gateway hears it. Never raises."""
    if sample.heard is None:
        return read_reply(sample)
    return read_body((TimedRead(sample.ended_ns, sample.heard.encode("utf-8", "replace")),))


def says_the_same(one: Reply, other: Reply) -> bool:
    """Whether a caller gets the same words, calls and end."""

    def said(reply: Reply) -> tuple[object, ...]:
        calls = tuple((call.name, call.arguments) for call in reply.calls)
        return reply.content, reply.reasoning, calls, reply.finish_reason, reply.error

    return said(one) == said(other)


def read_body(
    reads: Sequence[TimedRead], status: int | None = 200, fault: TransportFault | None = None
) -> Reply:
    """The same of the reads of a body."""
    timed = _until_done(reads)
    events = [event for _, event in timed]
    error = next((event for event in events if isinstance(event, Broken)), None)
    if status not in (None, 200):
        text = error.message if error else quote(b"".join(read.data for read in reads))
        error = Broken(text or f"HTTP {status} without a word", "engine_error", status or 0)
    return Reply(
        status=status,
        content="".join(event.text for event in events if isinstance(event, Text)),
        reasoning="".join(event.text for event in events if isinstance(event, Thought)),
        calls=join_calls(event for event in events if isinstance(event, CallStart | CallArguments)),
        finish_reason=next((event.reason for event in reversed(events) if isinstance(event, Finish)), None),
        done=any(isinstance(event, Done) for event in events),
        error=error,
        fault=fault,
        usage=next((event.counts for event in reversed(events) if isinstance(event, Usage)), None),
        clocks=_times(timed),
    )


def _until_done(reads: Sequence[TimedRead]) -> list[_TimedEvent]:
    """A body's events. Its first byte tells whether it is a stream, whatever was asked for."""
    body = b"".join(read.data for read in reads)
    if body.lstrip()[:1] in (b"{", b"<"):  # a proxy's HTML error page is not a stream either
        events = _events(body)
        is_whole = not any(isinstance(event, Broken) for event in events)
        return [(reads[-1].at_ns, event) for event in (*events, *([Done()] if is_whole else ()))]
    found: list[_TimedEvent] = []
    for at_ns, payload in _payloads(reads):
        found += ((at_ns, event) for event in _events(payload))
        if found and isinstance(found[-1][1], Done):
            break
    return found


def _payloads(reads: Sequence[TimedRead]) -> Iterator[tuple[int, bytes]]:
    decoder = SSEDecoder(sum(len(read.data) for read in reads))  # the client has bounded the whole body
    for read in reads:
        yield from ((read.at_ns, payload) for payload in decoder.feed(read.data))
    if reads:
        yield from ((reads[-1].at_ns, payload) for payload in decoder.close())


def _events(payload: bytes) -> list[Event]:
    try:
        return parse_payload(payload.strip())
    except MalformedChunk:
        return [Broken(f"not a chat completion: {quote(payload)}", "upstream_malformed")]


def _times(timed: Sequence[_TimedEvent]) -> ReplyTimes:
    first: dict[str, int] = {}
    last = None
    for at_ns, event in timed:
        if kind := _kind(event):
            last = at_ns
            first.setdefault("token", at_ns)
            first.setdefault(kind, at_ns)
    return ReplyTimes(**first, sentence=_sentence(timed, first), last=last)


def _kind(event: Event) -> str:
    """Which clock generated text stops; "" for everything else."""
    if isinstance(event, Text):
        return "content" if event.text.strip() else "token"  # white space after reasoning is not visible text
    if isinstance(event, Thought):
        return "reasoning"
    return "tool" if isinstance(event, CallStart | CallArguments) else ""


def _sentence(timed: Sequence[_TimedEvent], first: Mapping[str, int]) -> int | None:
    """When the first sentence was known to be complete; the end of the reply also ends a sentence."""
    said = [(at_ns, event.text) for at_ns, event in timed if isinstance(event, Text)]
    found = SENTENCE_END.search("".join(text for _, text in said))
    if found is None:
        ends = (at_ns for at_ns, event in timed if isinstance(event, Finish))
        return next(ends, None) if "content" in first else None
    over = found.end()
    for at_ns, text in said:
        over -= len(text)
        if over <= 0:
            return at_ns
    return None


def quote(data: bytes) -> str:
    """The beginning of foreign bytes on one line, for a message."""
    return " ".join(data[: 4 * _SHOWN].decode("utf-8", "replace").split())[:_SHOWN]


def _count(counts: Mapping[str, Any] | None, name: str) -> int | None:
    """A count in the usage; None if it is absent or not a whole number."""
    value = counts.get(name) if isinstance(counts, Mapping) else None
    return value if isinstance(value, int) else None
