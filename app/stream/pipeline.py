"""The whole stream core: an engine's bytes in, events out, in one order on any split.

    bytes -> SSEDecoder -> parse_payload -> Parser -> HoldBack -> CallNormalizer (-> PlainSpeech)

Every stage gives back what it holds before anything passes it. A reply that is not streamed takes the same way.
"""

from collections.abc import Iterator

from msgspec import Struct

from app.stream.call_normalizer import CallNormalizer
from app.stream.holdback import HoldBack, ThinkPolicy
from app.stream.logprobs import LogprobAligner
from app.stream.meter import ThoughtMeter, has_token
from app.stream.parser import Parser, Rules
from app.stream.plain_speech import PlainSpeech
from app.stream.schema import Tools, UnaskedCalls
from gates.reply.chunks import MalformedChunk, parse_payload, plain_text
from gates.reply.events import Broken, CallArguments, CallStart, Done, Event, Finish, Text, Thought, Usage
from gates.reply.sse import EventTooLong, SSEDecoder


class StreamPolicy(Struct, frozen=True):
    """What one request lets the core assume. `tools` is None when it declared none.

    unasked: what becomes of calls of other tools. format, json: as in `Rules`.
    closer: the id of the token that ends a thought, of an engine that sends ids, and that may take the tag itself out of the
        text (vLLM 0.24's qwen3_coder parser does).
    most, room: the request's `max_tokens` and the engine's context, in tokens. A reply that took them all was cut, even if the
        engine says `tool_calls` (vLLM 0.24 does).
    plain: Markdown in the text is made sentences for a voice; JSON is not.
    """

    think: ThinkPolicy = ThinkPolicy()
    tools: Tools | None = None
    id_prefix: str = ""
    closer: int | None = None
    most: int | None = None
    room: int | None = None
    unasked: UnaskedCalls = "strip"
    format: str = ""
    json: bool = False
    plain: bool = False


NO_TOOLS = Tools()


DELTA_SIZE = 32
"""What a delta counts beside its characters: Python keeps a short string in some 50 bytes."""
CALL_SIZE = 1024
"""The same for the start of a tool call."""


def _size_of(event: Event) -> int:
    """Roughly the memory that a reply's event may take until the reply is over, in bytes."""
    if type(event) is Text or type(event) is Thought:
        return DELTA_SIZE + len(event.text)
    if type(event) is CallStart:
        return CALL_SIZE + len(event.name) + len(event.id or "")
    return DELTA_SIZE + (len(event.fragment) if type(event) is CallArguments else 0)


class _Choice:
    """The stages of one reply, in order."""

    def __init__(self, policy: StreamPolicy) -> None:
        strips, tools = policy.unasked == "strip", policy.tools or NO_TOOLS
        rules = Rules(tools, strips, strips or policy.tools is not None, policy.json, policy.format)
        self.holdback = HoldBack(policy.think)
        self.parser = Parser(rules, self.holdback)
        self.calls = CallNormalizer(tools, policy.id_prefix)
        self.voice = PlainSpeech() if policy.plain and not policy.json else None
        self.is_plain = False  # text passes all stages as it is, if `parser.passes` it
        self.finished = False

    def feed(self, event: Event) -> list[Event]:
        """Push one event through the stages."""
        return self.normalized(self.parser.feed(event))

    def close(self) -> list[Event]:
        """The stream broke off: each stage's rest goes through the stages behind it."""
        events = self.normalized(self.parser.close())
        self.is_plain = False
        rest = "" if self.voice is None else self.voice.close()
        return [*events, *([Text(0, rest)] if rest else []), *self.calls.close("length")]

    def normalized(self, events: list[Event]) -> list[Event]:
        """What the parser gave, through the stages behind it."""
        out = [made for event in events for made in self.calls.feed(event)]
        if (voice := self.voice) is not None:
            return [said for event in out for said in self._said(voice, event)]
        self.is_plain = not (self.finished or self.calls.is_open) and self.parser.is_plain
        return out

    def _said(self, voice: PlainSpeech, event: Event) -> list[Event]:
        """The event as a voice says it; anything but a thought lets out what the voice held before it."""
        if type(event) is Thought:
            return [event]
        text = voice.feed(event.text) if type(event) is Text else voice.close()
        rest = [] if type(event) is Text else [event]
        return [Text(0, text), *rest] if text else rest


class Pipeline:
    """`feed` bytes, then `close`. After a Broken or Done nothing more comes out.

    `meter` and `aligner` see every payload.
    """

    def __init__(
        self, policy: StreamPolicy, meter: ThoughtMeter | None = None, aligner: LogprobAligner | None = None
    ) -> None:
        self._policy = policy
        self.meter = meter
        self._aligner = aligner
        self._closer = policy.closer
        self._late: Finish | None = None  # a finish that the usage behind it may contradict
        self._decoder = SSEDecoder()
        self._choice = _Choice(policy)
        self.over = False
        self.tokens = 0  # deltas with a generated token in them, shown or held
        self.size = 0  # of all that the reply said, shown or held; see `_size_of`

    @property
    def call_sources(self) -> list[str]:
        """engine, rescued, invalid or unasked, for each call of the reply so far, made or dropped."""
        return [*self._choice.calls.sources, *self._choice.holdback.dropped]

    @property
    def dropped(self) -> int:
        """Tool calls in the text of the reply so far that were taken out of it, sound or not."""
        return self._choice.holdback.dropped_raw

    def feed(self, data: bytes) -> list[Event]:
        """Events that `data` makes certain."""
        return [event for events in self.feed_each(data) for event in events]

    def feed_each(self, data: bytes | None) -> Iterator[list[Event]]:
        """The same, payload by payload: a read may hold the end of a thought and what follows it. None: the connection ended."""
        fault = None
        try:
            payloads = self._decoder.close() if data is None else self._decoder.feed(data)
        except EventTooLong as error:
            payloads, fault = error.payloads, Broken(f"the engine sent {error}", "upstream_event_too_long")
        for payload in payloads:
            yield self._read(payload)
        if fault is not None:
            yield self._end(fault)

    def passes(self, data: bytes) -> list[str] | None:
        """The texts of `data`, if it is plain text that every stage lets through, as most of a stream is. None: `feed` it."""
        choice = self._choice
        if not choice.is_plain or data.endswith(b"[DONE]\n\n"):
            return None
        payloads = self._decoder.whole_payloads(data)
        if payloads is None:
            return None
        texts = []
        for payload in payloads:
            text = plain_text(payload)
            if text is None:
                return None
            texts.append(text)
        joined = "".join(texts)
        if not choice.parser.passes(joined):
            return None
        self.tokens += len(texts)
        self.size += len(joined) + DELTA_SIZE * len(texts)
        return texts

    @property
    def _may_be_thinking(self) -> bool:
        """Whether the reply is in a thought, or in text that is one as long as no tag says otherwise."""
        return self._choice.parser.is_thinking or self._choice.holdback.may_be_thinking

    @property
    def is_thinking(self) -> bool:
        """Whether the reply is inside a thought that may be ended: no call has begun in it."""
        has_call = self._choice.parser.has_call or self._choice.holdback.has_call
        return self.tokens > 0 and self._may_be_thinking and not has_call

    def cut(self) -> list[Event]:
        """What is held of a thought that ends here. This reply is fed no more; another goes on."""
        rest = self._choice.normalized(self._choice.parser.close("length"))
        return [event for event in rest if type(event) is Thought]

    def close(self) -> list[Event]:
        """The connection ended. A reply without a finish reason is not a clean one."""
        return [*(event for events in self.feed_each(None) for event in events), *self._end()]

    def abort(self, message: str, code: str) -> list[Event]:
        """The connection broke: what is held, and then the fault, unless the reply was whole."""
        return self._end(Broken(message, code))

    def feed_message(self, payload: bytes) -> list[Event]:
        """A whole reply in one JSON object, from an engine that did not stream."""
        return [*self._read(payload), *self._end()]

    def _read(self, payload: bytes) -> list[Event]:
        if self.over:
            return []
        for observer in (self.meter, self._aligner):
            if observer is not None:
                observer.feed(payload)
        choice = self._choice
        text = plain_text(payload) if choice.is_plain else None
        if text is not None and choice.parser.passes(text):
            self.tokens += 1
            self.size += DELTA_SIZE + len(text)
            return [Text(0, text)]
        try:
            events = parse_payload(payload)
        except MalformedChunk as error:
            return self._end(Broken(f"the engine sent bad JSON: {error}", "upstream_malformed"))
        out: list[Event] = []
        if self._closer is not None and self.tokens and self._lost_closer(payload, self._closer):
            out = choice.normalized(choice.parser.end_thought())
        for event in events:
            self._route(event, out)
        return out

    def _lost_closer(self, payload: bytes, closer: int) -> bool:
        """Whether the tag that ends the thought was made here, and taken out of the text."""
        if not self._may_be_thinking:
            self._closer = None
            return False
        return b"</think>" not in payload and has_token(payload, closer)

    def _route(self, event: Event, out: list[Event]) -> None:
        if self.over:
            return
        if type(event) is Usage:  # counts stand beside the order and flush nothing
            is_broken = self._settle(event, out)
            out.insert(len(out) - is_broken, event)  # a fault stays the last word
        elif type(event) is Done:
            out += self._end()
        elif type(event) is Broken:
            out += self._end(event)
        elif type(event) is Finish and self._is_late(event):
            self._late = event
        else:
            self._feed_choice(event, out)

    def _is_late(self, finish: Finish) -> bool:
        """Whether a finish is to wait for the usage behind it: it may contradict it, or may count with that of another asking."""
        is_bounded = self._policy.most is not None or self._policy.room is not None
        hold = self._choice.holdback
        made_calls_only = not hold.is_visible and (hold.dropped or self._choice.parser.has_call)
        is_wanted = made_calls_only or (finish.reason == "tool_calls" and is_bounded)
        return bool(is_wanted) and self._late is None

    def _feed_choice(self, event: Event, out: list[Event]) -> None:
        self.size += _size_of(event)
        if type(event) is not Finish:  # a reply may end without a word
            self.tokens += 1
        choice = self._choice
        if choice.finished:
            return
        choice.finished = type(event) is Finish
        for made in choice.feed(event):
            if type(made) is Broken:
                choice.finished = False
                out += self._end(made)
                return
            out.append(made)

    def _settle(self, usage: Usage | None, out: list[Event]) -> bool:
        """Take the finish that was held back, in the light of the tokens that the reply took; whether that ended it by a fault."""
        late = self._late
        if late is None:
            return False
        self._late = None  # a fault that this finish uncovers settles nothing again
        if late.reason == "tool_calls" and usage is not None:
            made, most, room = usage.tokens("completion_tokens"), self._policy.most, self._policy.room
            total = made + usage.tokens("prompt_tokens")
            if (most is not None and made >= most) or (room is not None and total >= room):
                late = Finish(late.choice, "length")
        self._feed_choice(late, out)
        return self.over

    def _end(self, fault: Broken | None = None) -> list[Event]:
        """The stream is over: what is held, and then the fault, unless the reply was whole."""
        out: list[Event] = []
        if self.over or self._settle(None, out):
            return out
        self.over = True
        if self._choice.finished:
            return [*out, Done()]
        rest = [event for event in self._choice.close() if type(event) is not Broken]
        cut = Broken("the engine's stream ended without a finish_reason", "upstream_truncated")
        return [*out, *rest, fault or cut]
