"""Log-probabilities go out with the text of their delta, as long as nothing was taken out of the reply's text. Pure."""

import re
from collections import deque
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from gates.reply.chunks import UNREADABLE
from gates.reply.events import Alternative, Event, Finish, Logprobs, Text, Thought, TokenLogprob


class _Logprobs(Struct, gc=False):
    """Chat's form is `content`; the other lists are a legacy completion's."""

    content: list[TokenLogprob] | None = None
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None

    def in_chat_form(self) -> list[TokenLogprob]:
        if self.content is not None:
            return self.content
        others = self.top_logprobs or [None] * len(self.tokens)
        rows = zip(self.tokens, self.token_logprobs, others, strict=False)
        return [
            TokenLogprob(token, logprob, None, [Alternative(*one) for one in (other or {}).items()])
            for token, logprob, other in rows
            if logprob is not None
        ]


class _Said(Struct, gc=False):
    content: str | None = None


class _Choice(Struct, gc=False):
    delta: _Said | None = None
    message: _Said | None = None
    text: str | None = None
    logprobs: _Logprobs | None = None


class _Payload(Struct, gc=False):
    choices: list[_Choice] | None = None


_decode = msgspec.json.Decoder(_Payload).decode
_SLOW_NUMBER = re.compile(rb"[,:\[]\s*+-?[0-9.]++[eE][+-]?[0-9]{3}")
"""Three digits of exponent: msgspec takes 12 us for some, and no log-probability has them."""


class LogprobAligner:
    """`feed` each payload that the engine sends, or a whole reply; then `align` the events that came of it."""

    def __init__(self) -> None:
        self.is_over = False  # something was taken out of the text
        self._deltas: deque[tuple[str, list[TokenLogprob]]] = deque()  # that have not gone out
        self._is_first = True

    def feed(self, payload: bytes) -> None:
        """A payload that is not understood is another stage's to complain about."""
        if self.is_over or _SLOW_NUMBER.search(payload):
            return
        try:
            choices = _decode(payload).choices or ()
        except UNREADABLE:
            return
        for choice in choices:
            said = choice.delta or choice.message
            text = choice.text if said is None else said.content
            if text is not None:  # else it is reasoning
                self._add(text, [] if choice.logprobs is None else choice.logprobs.in_chat_form())

    def _add(self, text: str, tokens: list[TokenLogprob]) -> None:
        if self._is_first and (bare := text.lstrip("\r\n")) != text:  # as the joiner does
            text, tokens = bare, []
        self._is_first = self._is_first and not text
        self._deltas.append((text, tokens))

    def align(self, events: Sequence[Event]) -> list[Event]:
        """The events, with the tokens of each text before it. A `Logprobs` without tokens takes back those before it."""
        out: list[Event] = []
        for event in events:
            was_over = self.is_over
            if type(event) is Thought and event.kind != "field":
                self.is_over = True
            elif type(event) is Text and not was_over and (tokens := self._take(event.text)):
                out.append(Logprobs(event.choice, tokens))
            elif type(event) is Finish and any(text for text, _ in self._deltas):
                self.is_over = True
            if self.is_over > was_over:
                out.append(Logprobs(0, []))
            out.append(event)
        return out

    def _take(self, said: str) -> list[TokenLogprob]:
        """The tokens of the deltas that end in this text."""
        tokens: list[TokenLogprob] = []
        while self._deltas and (said or not self._deltas[0][0]):
            text, own = self._deltas.popleft()
            if not text.startswith(said[: len(text)]):
                break
            if len(said) < len(text):
                self._deltas.appendleft((text[len(said) :], own))
                return tokens
            said = said[len(text) :]
            tokens += own
        self.is_over = bool(said)
        return [] if said else tokens
