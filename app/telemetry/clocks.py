"""The three clocks of one reply, and its gaps. Times are values, in seconds of one steady clock.

Each clock runs from the request's last byte in. Time to first token ends at any generated token, thought or not; time to first
content at the first text or tool call that the caller is shown; time to first sentence when a voice could begin to speak.
"""

from collections.abc import Sequence

from gates.reply.events import CallArguments, CallStart, Event, Finish, Text, Thought
from gates.reply.reply import SENTENCE_END


class Clocks:
    """Feed it every batch of events with its time; read the marks (None: has not happened)."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.first_token: float | None = None
        self.first_content: float | None = None
        self.first_sentence: float | None = None
        self.last_token: float | None = None
        self.max_gap = 0.0
        self.shown = start  # when visible text or a call last went out
        self._tail = ""  # of what was said

    def feed(self, events: Sequence[Event], now: float) -> None:
        """Note what arrived at `now`."""
        for event in events:
            if type(event) is Text:
                self.text(event.text, now)
            elif type(event) is CallStart:
                self.text("", now)
            elif type(event) is Thought or type(event) is CallArguments:
                self.token(now)
            elif type(event) is Finish and self._tail and self.first_sentence is None:
                self.first_sentence = now

    def text(self, text: str, now: float) -> None:
        """Note one piece of visible text; "" for a call."""
        if self.first_content is None:
            self.token(now)
            self.first_content = now
        elif now - self.shown > self.max_gap:
            self.max_gap = now - self.shown
        self.shown = self.last_token = now
        if text and self.first_sentence is None:
            text = self._tail + text
            self._tail = text[-5:]  # as much as may end a sentence, if white space follows
            if SENTENCE_END.search(text):
                self.first_sentence = now

    def token(self, now: float) -> None:
        """A token arrived that is no visible text, or whose events are still held back: it stops the first clock only."""
        if self.first_token is None:
            self.first_token = now
        self.last_token = now

    def time_per_output_token(self, completion_tokens: int) -> float | None:
        """Seconds per token after the first, as Envoy AI Gateway defines it; tokens by the engine's usage. None with one token."""
        if self.first_token is None or self.last_token is None or completion_tokens < 2:
            return None
        return (self.last_token - self.first_token) / (completion_tokens - 1)
