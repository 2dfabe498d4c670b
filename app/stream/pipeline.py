"""The whole stream core: an engine's bytes in, events out, in one order on any split.

    bytes -> SSEDecoder -> parse_payload -> per choice: ThinkFilter -> CallExtractor -> CallBook

Every stage has `feed` and `close`, and gives back what it holds before anything passes it. A reply
that is not streamed takes the same road: feed it whole, then close.
"""

from functools import partial

from msgspec import Struct

from app.stream.callbook import CallBook
from app.stream.calls import CallExtractor, calls_in
from app.stream.chunks import MalformedChunk, parse_payload, plain_text
from app.stream.events import Broken, Done, Event, Finish, Text, Thought, Usage
from app.stream.schema import Tools
from app.stream.sse import EventTooLong, SSEDecoder
from app.stream.think import ThinkFilter, ThinkPolicy


class StreamPolicy(Struct, frozen=True):
    """What one request lets the core assume. `tools` is None when calls cannot occur."""

    think: ThinkPolicy = ThinkPolicy()
    tools: Tools | None = None
    id_prefix: str = ""


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
    """`feed` bytes, then `close`. After a Broken or Done nothing more comes out."""

    def __init__(self, policy: StreamPolicy) -> None:
        self._policy = policy
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
        try:
            payloads = self._decoder.feed(data)
        except EventTooLong as error:
            return self._break(f"the engine sent {error}", "upstream_event_too_long")
        return self._read(payloads)

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
            try:
                events = parse_payload(payload)
            except MalformedChunk as error:
                return [*out, *self._break(f"the engine sent bad JSON: {error}", "upstream_malformed")]
            for event in events:
                self._route(event, out)
        return out

    def _route(self, event: Event, out: list[Event]) -> None:
        if self.over:
            return
        if type(event) is Usage:  # counts stand beside the order and flush nothing
            out.append(event)
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

    def _end(self) -> list[Event]:
        if not self._choices or not all(c.finished for c in self._choices.values()):
            return self._break("the engine's stream ended without a finish_reason", "upstream_truncated")
        self.over, self._plain = True, None
        return [Done()]

    def _break(self, message: str, code: str, status: int = 0) -> list[Event]:
        if self._choices and all(c.finished for c in self._choices.values()):
            self.over = True  # every choice had been told in full: the fault took nothing away
            return [Done()]
        self.over, self._plain = True, None
        rest = [e for c in self._choices.values() if not c.finished for e in c.close()]
        return [*(e for e in rest if type(e) is not Broken), Broken(message, code, status)]
