"""The whole stream core: an engine's bytes in, events out, in one order on any split.

    bytes -> SSEDecoder -> parse_payload -> per choice: ThinkFilter -> CallExtractor -> CallBook

Every stage has `feed` and `close`, and gives back what it holds before anything passes it. A reply
that is not streamed takes the same road: feed it whole, then close.
"""

from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from app.stream.callbook import CallBook
from app.stream.calls import CallExtractor, calls_in
from app.stream.chunks import MalformedChunk, parse_payload, plain_text
from app.stream.events import Broken, Done, Event, Finish, Text, Thought, Usage
from app.stream.meter import ThoughtMeter, has_token
from app.stream.schema import Tools
from app.stream.sse import EventTooLong, SSEDecoder
from app.stream.think import CLOSERS, ThinkFilter, ThinkPolicy


class StreamPolicy(Struct, frozen=True):
    """What one request lets the core assume. `tools` is None when calls cannot occur.

    closer: the id of the token that ends a thought, of an engine that sends ids, and that may take
        the tag itself out of the text (vLLM 0.24's qwen3_coder parser does).
    most, room: the request's `max_tokens` and the engine's context, in tokens. A reply that took
        them all was cut, even if the engine says `tool_calls` (vLLM 0.24 does).
    """

    think: ThinkPolicy = ThinkPolicy()
    tools: Tools | None = None
    id_prefix: str = ""
    closer: int | None = None
    most: int | None = None
    room: int | None = None


class Spent(Struct, frozen=True):
    """Tokens of a reply that was given up in mid-thought: the caller's prompt, and the thought."""

    prompt: int
    thought: int

    def plus(self, usage: Usage) -> Usage:
        """Both replies as one. What the second found cached was the first: nobody's saving."""
        made = self.thought + usage.tokens("completion_tokens")
        counts = {
            "prompt_tokens": self.prompt,
            "completion_tokens": made,
            "total_tokens": self.prompt + made,
            "completion_tokens_details": {"reasoning_tokens": self.thought},
        }
        return Usage(counts)


class _Choice:
    """The stages of one choice, in order."""

    def __init__(self, index: int, policy: StreamPolicy) -> None:
        think, tools = policy.think, policy.tools
        if tools is not None:
            think = ThinkPolicy(
                think.thinking,
                think.guard,
                think.reasoning_is_answer,
                partial(_calls_in_thought, index, tools),
            )
        self.think = ThinkFilter(index, think)
        self.extract = None if tools is None else CallExtractor(index, tools)
        self.book = CallBook(index, tools or Tools(), policy.id_prefix)
        self.finished = False

    def feed(self, event: Event) -> list[Event]:
        """Push one event through the stages."""
        events = self.think.feed(event)
        if self.extract is not None:
            events = _through(self.extract, events)
        if len(events) == 1 and type(events[0]) is Text:
            return events
        return _through(self.book, events)

    def close(self) -> list[Event]:
        """The stream broke off: each stage's rest goes through the stages behind it."""
        events = self.think.close()
        if self.extract is not None:
            events = [*_through(self.extract, events), *self.extract.close()]
        return [*_through(self.book, events), *self.book.close("length")]


def _through(stage: CallExtractor | CallBook, events: list[Event]) -> list[Event]:
    if len(events) == 1:
        return stage.feed(events[0])
    return [out for event in events for out in stage.feed(event)]


def _calls_in_thought(choice: int, tools: Tools, text: str) -> list[Event]:
    """Calls in a thought that never closed; the rest of it stays a thought."""
    found = calls_in(choice, tools, text)
    return [Thought(choice, e.text, "tag") if type(e) is Text else e for e in found]


class Pipeline:
    """`feed` bytes, then `close`. After a Broken or Done nothing more comes out.

    `meter` sees every payload, while there is one. `spent` is what a reply has cost that this one
    goes on with: its usage becomes the sum.
    """

    def __init__(
        self, policy: StreamPolicy, meter: ThoughtMeter | None = None, spent: Spent | None = None
    ) -> None:
        self._policy = policy
        self.meter = meter
        self._spent = spent
        self._closer = policy.closer
        self._late: Finish | None = None  # a finish that the usage behind it may contradict
        self._decoder = SSEDecoder()
        self._choices: dict[int, _Choice] = {}
        self._plain: _Choice | None = None  # choice 0, while it is the only one and goes on
        self.over = False
        self.tokens = 0  # deltas with a generated token in them, shown or held

    @property
    def call_sources(self) -> list[str]:
        """engine, rescued or invalid, for each call of the reply so far."""
        return [source for choice in self._choices.values() for source in choice.book.sources]

    def feed(self, data: bytes) -> list[Event]:
        """Events that `data` makes certain."""
        return [event for events in self.feed_each(data) for event in events]

    def feed_each(self, data: bytes) -> Iterator[list[Event]]:
        """The same, payload by payload: a read may hold the end of a thought and what follows it."""
        try:
            payloads = self._decoder.feed(data)
        except EventTooLong as error:
            yield self._break(f"the engine sent {error}", "upstream_event_too_long")
            return
        for payload in payloads:
            yield self._read([payload])

    def passes(self, data: bytes) -> list[str] | None:
        """The short way: the texts of `data`, if it is plain text that every stage lets through.

        Most of a stream is. None: `feed` it; nothing has been taken. Never another answer than
        `feed` would give, only a cheaper one.
        """
        choice = self._plain
        payloads = None if choice is None else self._decoder.whole_payloads(data)
        if choice is None or payloads is None:
            return None
        texts = []
        for payload in payloads:
            text = plain_text(payload)
            if text is None:
                return None
            texts.append(text)
        joined = texts[0] if len(texts) == 1 else "".join(texts)
        if not choice.think.passes(joined):
            return None
        if choice.extract is not None and not choice.extract.passes(joined):
            return None
        self.tokens += len(texts)
        return texts

    @property
    def is_thinking(self) -> bool:
        """Whether the reply is inside a thought that may be ended: no call has begun in it."""
        choice = self._choices.get(0)
        return choice is not None and choice.think.is_open and not choice.think.has_call

    def cut(self) -> list[Event]:
        """What is held of a thought that ends here. This reply is fed no more; another goes on."""
        rest = [e for choice in self._choices.values() for e in choice.think.close("length")]
        return [event for event in rest if type(event) is Thought]

    def close(self) -> list[Event]:
        """The connection ended. A reply without a finish reason is not a clean one."""
        events = self._read(self._decoder.close())
        return events if self.over else [*events, *self._end()]

    def abort(self, message: str, code: str) -> list[Event]:
        """The connection broke: what is held, and then the fault, unless the reply was whole."""
        return [] if self.over else self._break(message, code)

    def feed_message(self, payload: bytes) -> list[Event]:
        """A whole reply in one JSON object, from an engine that did not stream."""
        return [*self._read([payload]), *([] if self.over else self._end())]

    def _read(self, payloads: list[bytes]) -> list[Event]:
        out: list[Event] = []
        for payload in payloads:
            if self.over:
                break
            if self.meter is not None:
                self.meter.feed(payload)
            try:
                events = parse_payload(payload)
            except MalformedChunk as error:
                return [*out, *self._break(f"the engine sent bad JSON: {error}", "upstream_malformed")]
            if self._closer is not None and self._lost_closer(payload):
                self._route(Text(0, CLOSERS[0]), out)
            for event in events:
                self._route(event, out)
        return out

    def _lost_closer(self, payload: bytes) -> bool:
        """Whether the tag that ends the thought was made here, and taken out of the text."""
        choice = self._choices.get(0)
        if choice is None or not choice.think.is_open:
            self._closer = None if choice is not None else self._closer
            return False
        assert self._closer is not None
        return CLOSERS[0].encode() not in payload and has_token(payload, self._closer)

    def _route(self, event: Event, out: list[Event]) -> None:
        if self.over:
            return
        if type(event) is Usage:  # counts stand beside the order and flush nothing
            self._settle(event, out)
            out.append(event if self._spent is None else self._spent.plus(event))
        elif type(event) is Done:
            out.extend(self._end())
        elif type(event) is Broken:
            out.extend(self._break(event.message, event.code, event.status))
        else:
            self._feed_choice(event, out)

    def _feed_choice(self, event: Event, out: list[Event]) -> None:
        assert not isinstance(event, Usage | Broken | Done)
        if type(event) is not Finish:  # a reply may end without a word
            self.tokens += 1
        if type(event) is Finish and event.reason == "tool_calls" and self._late is None and self._is_bounded:
            self._late = event
            return
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = _Choice(event.choice, self._policy)
            self._plain = choice if list(self._choices) == [0] else None
        if choice.finished:
            return
        if type(event) is Finish:
            choice.finished, self._plain = True, None
        events = choice.feed(event)
        for position, made in enumerate(events):
            if type(made) is Broken:
                choice.finished = False
                out.extend(events[:position])
                out.extend(self._break(made.message, made.code))
                return
        out.extend(events)

    @property
    def _is_bounded(self) -> bool:
        return self._policy.most is not None or self._policy.room is not None

    def _settle(self, usage: Usage | None, out: list[Event]) -> None:
        """A finish that was held back, in the light of the tokens that the reply took."""
        late = self._late
        if late is None:
            return
        if usage is not None and self._took_all(usage):
            late = Finish(late.choice, "length")
        self._feed_choice(late, out)
        self._late = None

    def _took_all(self, usage: Usage) -> bool:
        made, most, room = usage.tokens("completion_tokens"), self._policy.most, self._policy.room
        total = made + usage.tokens("prompt_tokens")
        return (most is not None and made >= most) or (room is not None and total >= room)

    def _end(self) -> list[Event]:
        held: list[Event] = []
        self._settle(None, held)
        return [*held, *self._end_now()]

    def _end_now(self) -> list[Event]:
        if not self._choices or not all(c.finished for c in self._choices.values()):
            return self._break("the engine's stream ended without a finish_reason", "upstream_truncated")
        self.over, self._plain = True, None
        return [Done()]

    def _break(self, message: str, code: str, status: int = 0) -> list[Event]:
        held: list[Event] = []
        self._settle(None, held)
        return [*held, *self._break_now(message, code, status)]

    def _break_now(self, message: str, code: str, status: int) -> list[Event]:
        if self._choices and all(c.finished for c in self._choices.values()):
            self.over = True  # every choice had been told in full: the fault took nothing away
            return [Done()]
        self.over, self._plain = True, None
        rest = [e for c in self._choices.values() if not c.finished for e in c.close()]
        return [*(e for e in rest if type(e) is not Broken), Broken(message, code, status)]
