"""Log-probabilities of the tokens that go out to the caller. Pure.

An engine sends them chunk by chunk, of all that it generates; the stream core then leaves out thoughts, calls and tags,
and holds text back. So tokens are matched to the text that goes out by their bytes, and only where there is one place
for it: a token whose place is not certain, or of which only a part goes out, is left out, as is an alternative that is a
tag. Of chunks with a thought in the engine's own field nothing is taken.
"""

import re
from collections import deque
from collections.abc import Sequence
from itertools import groupby

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.stream.chunks import UNREADABLE
from app.stream.events import Alternative, Event, Logprobs, Text, Thought, TokenLogprob
from app.stream.sse import EventTooLong, SSEDecoder
from app.stream.tags import ALL_CALL_FAMILIES, ALL_FAMILIES, tag_set

MOST_BYTES = 128 << 10
"""Most text whose tokens are kept; of a longer one that is held back, none is sent."""
MOST_WORK = 1 << 22
"""Bytes that are looked through for texts that do not follow each other; beyond that none is sent."""


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
        self._raw = bytearray()  # of the tokens, as far as they may still go out
        self._at = 0  # where it begins, in bytes of the whole
        self._tokens: deque[tuple[int, int, TokenLogprob]] = deque()  # and where each begins and ends
        self._run = 0  # where the text began that goes out without a gap until `_at`

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
        if _SLOW_NUMBER.search(payload):
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
            start = self._at + len(self._raw)
            self._raw += said
            self._tokens.append((start, start + len(said), token))
        if len(self._raw) > MOST_BYTES:
            self._drop(self._at + len(self._raw))

    def align(self, events: Sequence[Event], is_settled: bool) -> list[Event]:
        """The events, with the tokens of each text before it. is_settled: the core holds nothing back."""
        out: list[Event] = []
        for is_text, group in groupby(events, lambda event: type(event) is Text):
            if is_text:
                self._align_texts([event for event in group if type(event) is Text], out)
                continue
            for event in group:
                if type(event) is Thought and event.kind != "field":
                    self._skip(event.text.encode())
                out.append(event)
        if is_settled:
            self._settle()
        return out

    def _align_texts(self, texts: Sequence[Text], out: list[Event]) -> None:
        """Texts that follow each other: found together if they stood so, else one by one."""
        said = [text.text.encode("utf-8", "surrogatepass") for text in texts]
        start = self._place(b"".join(said))
        is_much = len(said) * len(self._raw) > MOST_WORK
        for text, part in zip(texts, said, strict=True):
            at = self._place(part) if start is None and not is_much else start
            if at is not None:
                tokens = self._take(at, at + len(part))
                start = None if start is None else start + len(part)
                if tokens:
                    out.append(Logprobs(text.choice, tokens))
            out.append(text)

    def _place(self, said: bytes) -> int | None:
        """The one place where this stands; None if there is none, or more than one."""
        found = self._raw.find(said)
        return None if found < 0 or found != self._raw.rfind(said) else self._at + found

    def _take(self, start: int, end: int) -> list[TokenLogprob]:
        """The tokens of a text that goes out, if all of them does. Nothing before its end can go out again."""
        if start != self._at:
            self._run = start
        done = []
        while self._tokens and self._tokens[0][1] <= end:
            done.append(self._tokens.popleft())
        self._cut(end)
        return [
            _without_tags(token) for begin, finish, token in done if begin >= self._run and finish > begin
        ]

    def _skip(self, thought: bytes) -> None:
        """A thought that stood in the text: it was before whatever goes out next."""
        found = self._raw.find(thought) if thought else -1
        if found >= 0:
            self._drop(self._at + found + len(thought))

    def _settle(self) -> None:
        """What has not gone out by now never will, except the beginning of a character."""
        try:
            self._raw.decode()
            self._drop(self._at + len(self._raw))
        except UnicodeDecodeError as error:
            is_begun = error.end == len(self._raw) and len(self._raw) - error.start < 4
            self._drop(self._at + (error.start if is_begun else len(self._raw)))

    def _drop(self, end: int) -> None:
        """Nothing before here goes out, nor does a token that begins there."""
        if end > self._at:
            self._cut(end)
            self._run = end
            while self._tokens and self._tokens[0][0] < end:
                self._tokens.popleft()

    def _cut(self, end: int) -> None:
        del self._raw[: end - self._at]
        self._at = end


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
    tags = tag_set(ALL_FAMILIES, ALL_CALL_FAMILIES).text
    return "<|" in token or (tags.may_hold(token) and tags.scan(token + " ")[0] is not None)


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
