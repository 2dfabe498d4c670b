"""Log-probabilities of the tokens that go out to the caller. Pure.

An engine sends them chunk by chunk, of all that it generates. They go out beside the text as long as the text is the
engine's to the letter: from the first piece on that the parser takes out, the rest of the reply has none.
"""

import re
from collections import deque
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gates.contracts.markers import find
from gates.reply.chunks import UNREADABLE
from gates.reply.events import Alternative, Event, Logprobs, Text, Thought, TokenLogprob
from gates.reply.sse import EventTooLong, SSEDecoder

MOST_BYTES = 128 << 10
"""Most text whose tokens are kept; of a longer one that is held back, none is sent."""


class _Logprobs(Struct, gc=False):
    """Chat's form is `content`; the other lists are a legacy completion's."""

    content: list[TokenLogprob] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Said(Struct, gc=False):
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Choice(Struct, gc=False):
    delta: _Said | None = None
    message: _Said | None = None
    logprobs: _Logprobs | None = None


class _Payload(Struct, gc=False):
    choices: list[_Choice] | None = None


_decode = msgspec.json.Decoder(_Payload).decode
_SLOW_NUMBER = re.compile(rb"[,:\[]\s*+-?[0-9.]++[eE][+-]?[0-9]{3}")
"""Three digits of exponent: msgspec takes 12 us for some, and no log-probability has them."""


class SpokenTokens:
    """`data` or `payload` for what the engine sends, then `align` for the events that came of it."""

    def __init__(self) -> None:
        self._decoder = SSEDecoder()
        self._raw = bytearray()  # of the tokens that have not gone out
        self._tokens: deque[tuple[int, TokenLogprob | None]] = (
            deque()
        )  # each with its length in bytes; None: not told
        self._is_first = True
        self._is_over = False  # something was taken out

    def data(self, data: bytes) -> None:
        """A read of the engine's stream."""
        try:
            payloads = self._decoder.feed(data)
        except EventTooLong as error:
            payloads = error.payloads
        for payload in payloads:
            self.payload(payload)

    def payload(self, payload: bytes) -> None:
        """One payload, or a whole reply; one that is not understood is another stage's to complain about."""
        if self._is_over or _SLOW_NUMBER.search(payload):
            return
        try:
            choices = _decode(payload).choices or ()
        except UNREADABLE:
            return
        for choice in choices:
            said = choice.delta or choice.message
            is_thought = said is not None and (said.reasoning or said.reasoning_content)
            if choice.logprobs is not None and not is_thought:
                self._add(_tokens_of(choice.logprobs))

    def _add(self, tokens: Sequence[TokenLogprob]) -> None:
        for token in tokens:
            said = _bytes_of(token)
            self._raw += said
            self._tokens.append((len(said), token))
        if len(self._raw) > MOST_BYTES:
            self._end()

    def align(self, events: Sequence[Event]) -> list[Event]:
        """The events, with the tokens of each text before it. A token goes with the text that holds its last byte."""
        out: list[Event] = []
        for event in events:
            if type(event) is Text:
                if tokens := self._take(event.text.encode("utf-8", "surrogatepass")):
                    out.append(Logprobs(event.choice, tokens))
            elif type(event) is Thought and event.kind != "field":
                self._end()
            out.append(event)
        return out

    def _take(self, said: bytes) -> list[TokenLogprob]:
        if self._is_first:
            self._is_first = False
            self._skip(len(self._raw) - len(self._raw.lstrip(b"\r\n")))
        if self._is_over or not self._raw.startswith(said):
            self._end()
            return []
        del self._raw[: len(said)]
        left, done = len(said), []
        while self._tokens and self._tokens[0][0] <= left:
            size, token = self._tokens.popleft()
            left -= size
            if token is not None:
                done.append(_without_tags(token))
        if left and self._tokens:
            size, token = self._tokens[0]
            self._tokens[0] = (size - left, token)
        return done

    def _skip(self, lead: int) -> None:
        """Line breaks before the first word are left out, and every token that holds one."""
        del self._raw[:lead]
        while lead > 0 and self._tokens:
            size, _ = self._tokens.popleft()
            lead -= size
        if lead < 0:
            self._tokens.appendleft((-lead, None))

    def _end(self) -> None:
        self._is_over = True
        self._raw.clear()
        self._tokens.clear()


def _bytes_of(token: TokenLogprob) -> bytes:
    """Of a token that is only a part of a character, the text says nothing."""
    if token.bytes is not None and all(0 <= byte < 256 for byte in token.bytes):
        return bytes(token.bytes)
    return token.token.encode("utf-8", "surrogatepass")


def _without_tags(token: TokenLogprob) -> TokenLogprob:
    """The token, without alternatives that are tags or special tokens."""
    others = token.top_logprobs
    kept = [one for one in others if not _is_tag(one.token)]
    return token if len(kept) == len(others) else replace(token, top_logprobs=kept)


def _is_tag(token: str) -> bool:
    return "<|" in token or next(find(token + " "), None) is not None


def _tokens_of(told: _Logprobs) -> list[TokenLogprob]:
    """In chat's form, whatever form they came in."""
    if told.content is not None:
        return told.content
    names, values = told.tokens or [], told.token_logprobs or []
    others = told.top_logprobs or [None] * len(names)
    return [
        TokenLogprob(name, value, None, [Alternative(*one) for one in (other or {}).items()])
        for name, value, other in zip(names, values, others, strict=False)
        if value is not None
    ]
