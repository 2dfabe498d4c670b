"""The hold-back: decides when speech may go out.

A closing tag whose opening tag was lost makes a thought of the text before it. What has gone out by then cannot be taken
back, so that text is held: so many characters at the start of a reply, and again after each thought. How many is decided
by what is known of the engine (`app.stream.thinking_control`); a reply that is not streamed is held to its end.
"""

import sys

from msgspec import Struct

from app.stream.joiner import Joiner
from gates.reply.events import Broken, CallArguments, CallStart, Event, Finish, Text, Thought

UNBOUNDED = sys.maxsize
"""A hold-back that only a tag or the end of the reply lifts."""

RELAPSE_GUARD = 256
"""Characters held after a thought that nobody asked for, at least: that engine's next tag may be lost too."""

RESCUED_INDEX = 1 << 20
"""Calls that were found in the text count from here; those of the engine count from 0."""

FILTERED = "reply_fully_filtered"

_NORMAL = ("stop", "tool_calls", "function_call")
"""Finish reasons of a reply that came to its own end."""
CUT = ("length", "")


class ThinkPolicy(Struct, frozen=True):
    """What may be assumed of the thoughts in this reply.

    thinking: the engine was asked to think.
    guard: characters held at the start of the reply (0 to UNBOUNDED).
    reasoning_is_answer: with thinking off, a reply that came wholly in the reasoning field is the answer (vLLM #53284, #19839).
    after: characters held after each thought. None: with thinking on none, else as many as at the start, and RELAPSE_GUARD.
    opened: the prompt may have opened the thought (thinking on, and the engine may leave thoughts in the text): then held text
        is a thought where reasoning follows it, or where the reply is cut.
    """

    thinking: bool = False
    guard: int = 0
    reasoning_is_answer: bool = False
    after: int | None = None
    opened: bool = False

    @property
    def held_after(self) -> int:
        """Characters held after each thought."""
        if self.after is not None:
            return self.after
        return 0 if self.thinking else max(self.guard, RELAPSE_GUARD)


class HoldBack:
    """Takes speech, thoughts and calls in their order; `take` gives the events that may go out.

    dropped: the source of each call so far that was taken out, as a metric's label; dropped_raw: how many of them
    stood in the text. has_call: a call is held. withheld: reasoning that may be the answer.
    """

    def __init__(self, policy: ThinkPolicy) -> None:
        self.dropped: list[str] = []
        self.dropped_raw = 0
        self.has_call = False
        self.is_visible = False  # visible text has gone out
        self.told_apart = False  # a thought or a call stood in the text
        self.last = ""  # the last character that was shown
        self.joiner = Joiner()
        self._policy = policy
        self._out: list[Event] = []
        self._limit = policy.guard  # 0: everything passes
        self._held: list[Event] = []
        self._size = 0  # characters in _held that would be seen
        self._opened = policy.opened
        self.withheld: list[str] = []
        self._orphan = ""  # the last text that an orphan closer took back, while nothing was shown
        self._rescued = 0
        self._has_reasoning = False  # in the engine's own field
        self._is_filtered = False  # something was kept from the caller

    def take(self) -> list[Event]:
        """The events that may go out now."""
        out, self._out = self._out, []
        return out

    @property
    def is_plain(self) -> bool:
        """Whether text that ends in a word passes as it is."""
        return self.is_visible and not self._limit and self.joiner.is_plain

    @property
    def may_be_thinking(self) -> bool:
        """Whether text so far is a thought as long as no tag says otherwise."""
        return self._opened and self._limit > 0

    @property
    def is_blank(self) -> bool:
        """Whether nothing at all has been said so far."""
        return not (self.is_visible or self._size or self.told_apart or self._held)

    def text(self, text: str) -> None:
        """Speech."""
        self._joined(self.joiner.text(text))

    def removed(self) -> None:
        """Something was taken out of the text here."""
        self.joiner.removed()
        self._is_filtered = True

    def thought(self, text: str, kind: str) -> None:
        """A piece of a thought. kind: see `Thought`."""
        policy = self._policy
        self._has_reasoning = self._has_reasoning or kind == "field"
        if self._opened and kind == "field":  # vLLM #45763: its first words came as content
            self._take_back()
            self._opened = False
        if policy.reasoning_is_answer and kind == "field" and not (policy.thinking or self.is_visible):
            self.withheld.append(text)
            return
        self.told_apart = self.told_apart or kind == "tag"
        self._is_filtered = self._is_filtered or not (policy.thinking or text.isspace())
        (self._held or self._out).append(Thought(0, text, kind))

    def thought_ends(self) -> None:
        """A thought in the text is over: so many characters are held again."""
        self.told_apart, self._opened = True, False
        self._release()  # what stood before a thought of its own is speech
        self._guard_again()

    def reasoning_ends(self) -> None:
        """Text follows the engine's reasoning field: so many characters are held, as behind any thought."""
        self._size = 0
        self._guard_again()
        if not self._limit:
            self._release()

    def orphan(self) -> None:
        """A closing tag that nothing opened: what is held was a thought."""
        self._joined(self.joiner.flush())
        self._flush_withheld()
        self._take_back(always=True)
        self._is_filtered = self.told_apart = True
        self._opened = False
        self._guard_again()

    def _guard_again(self) -> None:
        self._limit = self._policy.held_after
        self.joiner.removed()

    def call(self, name: str, arguments: str, source: str) -> None:
        """A call that was found in the text; `source` as in `CallStart`."""
        self.removed()
        index = RESCUED_INDEX + self._rescued
        self._rescued += 1
        self._speech(CallStart(0, index, name, source=source))
        if arguments:
            self._speech(CallArguments(0, index, arguments))

    def native(self, event: CallStart | CallArguments) -> None:
        """A call that the engine itself made: it is no part of a thought, and what is held before it goes first."""
        self._joined(self.joiner.flush())
        self.joiner.removed()
        if self._limit == UNBOUNDED and not self._opened:
            self._held.append(event)
            return
        if self._limit:
            self._limit = 0
            if self._opened:
                self._take_back()
                self._opened, self._limit = False, self._policy.held_after
            self._release()
        self._show(event)

    def drop(self, source: str, *, is_raw: bool = True) -> None:
        """A call was taken out that is none, or that nobody asked for."""
        if is_raw:
            self.removed()
        self.told_apart = self._is_filtered = True
        self.dropped.append(source)
        self.dropped_raw += is_raw

    def answer(self, reason: str) -> str:
        """Reasoning that turns out to be the answer at the end: it is to be read as text."""
        if reason != "stop" or not self.withheld:
            return ""
        self._joined(self.joiner.flush())
        self._release()
        if self.is_visible or self.told_apart:
            return ""
        text, self.withheld = "".join(self.withheld).lstrip("\r\n"), []
        self._limit, self._has_reasoning, self.joiner = UNBOUNDED, False, Joiner()
        return text

    def close(self, reason: str = "") -> None:
        """Gives back what is held; `reason` is the finish reason.

        Text that is held when a stream breaks (reason "") was never known to be speech, and is not shown.
        """
        if reason or not self._limit:
            self._joined(self.joiner.flush())
        if reason in CUT and self.may_be_thinking:
            self._take_back()
        if not reason:
            self._take_held()
        self._release()
        is_answer = not (self.is_visible or self._has_reasoning or self._policy.thinking or self.dropped)
        if is_answer and reason in _NORMAL and self._orphan.strip():  # nothing followed the closing tag
            self._show(Text(0, self._orphan.strip()))
        self._flush_withheld()

    def finish(self, finish: Finish) -> None:
        self.close(finish.reason)
        if self._is_filtered and not self.is_visible and finish.reason in _NORMAL:
            message = (
                "the engine's reply held only reasoning or tool calls that cannot be handed on: "
                "ask again, or change the request"
            )
            self._out.append(Broken(message, FILTERED))
            return
        self._out.append(finish)

    def _joined(self, text: str) -> None:
        if text:
            self._speech(Text(0, text))

    def _speech(self, event: Text | CallStart | CallArguments) -> None:
        if not self._limit:
            return self._show(event)
        self._held.append(event)
        self.has_call = self.has_call or type(event) is CallStart
        self._size += len(event.text) if type(event) is Text else 0
        if self._size > self._limit:
            self._limit = 0
            self._release()

    def _show(self, event: Event) -> None:
        if type(event) is CallStart or (type(event) is Text and not event.text.isspace()):
            self.is_visible, self._orphan = True, ""
            self._flush_withheld()
        if type(event) is Text:
            self.last = event.text[-1:]
        self._out.append(event)

    def _release(self) -> None:
        """What was held is speech after all."""
        for event in self._take_held():
            self._show(event)

    def _take_back(self, always: bool = False) -> None:
        """Held text becomes an orphan thought, and calls in it were part of the thought.

        always: the thought is reported even if its text had gone out already.
        """
        held = self._take_held()
        texts = [event.text for event in held if type(event) is Text]
        if texts:
            self.joiner.rewind(self.last)
        if texts or always:
            self._orphan = "" if self.is_visible else "".join(texts)
            self._out.append(Thought(0, "".join(texts), "orphan"))
        others = (event for event in held if type(event) is not Text)
        self._out += [event for event in others if getattr(event, "index", 0) < RESCUED_INDEX]

    def _take_held(self) -> list[Event]:
        held, self._held, self._size, self.has_call = self._held, [], 0, False
        return held

    def _flush_withheld(self) -> None:
        if self.withheld:
            text, self.withheld = "".join(self.withheld), []
            self._is_filtered = self._is_filtered or not text.isspace()
            self._out.append(Thought(0, text, "field"))
