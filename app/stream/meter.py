"""The thought meter: how many tokens a thought has taken, by the engine's own count. Pure.

Usage comes too late. vLLM sends the ids of the tokens with `return_token_ids`, llama-server a running count with
`timings_per_token`; where there is neither, every piece counts as one token, which is never too many.
"""

import msgspec
from msgspec import Struct

from gates.reply.chunks import UNREADABLE


class _Choice(Struct, gc=False):
    token_ids: list[int] | None = None


class _Timings(Struct, gc=False):
    predicted_n: int = 0


class _Payload(Struct, gc=False):
    prompt_token_ids: list[int] | None = None
    choices: list[_Choice] | None = None
    timings: _Timings | None = None


_decode = msgspec.json.Decoder(_Payload).decode


def has_token(payload: bytes, token: int) -> bool:
    """Whether a payload's token ids, where it has any, hold this one."""
    meter = ThoughtMeter()
    meter.feed(payload)
    return token in meter.tokens


class ThoughtMeter:
    """`feed` it every payload of a reply's beginning.

    prompt, tokens: the ids of its tokens so far; [] if the engine does not report them.
    """

    def __init__(self) -> None:
        self.prompt: list[int] = []
        self.tokens: list[int] = []
        self._timings = _Timings()
        self.pieces = 0  # deltas with generated text in them that have been seen

    def feed(self, payload: bytes) -> None:
        """Note one payload; one that is not understood is another stage's to complain about."""
        try:
            chunk = _decode(payload)
        except UNREADABLE:
            return
        self.prompt = self.prompt or chunk.prompt_token_ids or []
        for choice in chunk.choices or ():
            self.tokens += choice.token_ids or ()
        if chunk.timings is not None:
            self._timings = chunk.timings

    @property
    def count(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) or self._timings.predicted_n or self.pieces
