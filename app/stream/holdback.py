"""The hold-back: decides when speech may go out.

A closing tag whose opening tag was lost makes a thought of the text before it. What has gone out by
then cannot be taken back, so that text is held: so many characters at the start of a reply, and again
after each thought. How many is decided by what is known of the engine (`app.stream.conduct`); a reply that
is not streamed is held to its end, and so knows everything.
"""

import sys
from collections.abc import Callable

from msgspec import Struct

from app.stream.calls import CUT, RESCUED_INDEX
from app.stream.events import (
    Broken,
    CallArguments,
    CallStart,
    Dropped,
    Event,
    Finish,
    Retract,
    Segment,
    Text,
    Thought,
    ThoughtEnd,
    ThoughtStart,
)
from app.stream.tags import ALL_FAMILIES

UNBOUNDED = sys.maxsize
"""A hold-back that only a tag or the end of the reply lifts."""

RELAPSE_GUARD = 256
"""Characters held after a thought that nobody asked for, at least: that engine's next tag may be lost too.

The leftover behind a budget cut (llama.cpp #28182) is a sentence or less."""

FILTERED = "reply_fully_filtered"

_NORMAL = ("stop", "tool_calls", "function_call")
"""Finish reasons of a reply that came to its own end."""


class ThinkPolicy(Struct, frozen=True):
    """What may be assumed of the thoughts in this reply.

    thinking: the engine was asked to think.
    guard: characters held at the start of the reply (0 to UNBOUNDED).
    reasoning_is_answer: with thinking off, a reply that came wholly in the reasoning field is the
        answer (vLLM #53284, #19839), not a thought.
    after: characters held after each thought. None: as many as at the start with thinking off, and at
        least RELAPSE_GUARD; none with thinking on.
    opened: the prompt may have opened the thought (thinking on, and the engine may leave thoughts in
        the text): then held text is a thought where reasoning follows it, or where the reply is cut.
    families: the think tags that are looked for, by their names in `app.stream.tags.FAMILIES`.
    """

    thinking: bool = False
    guard: int = 0
    reasoning_is_answer: bool = False
    after: int | None = None
    opened: bool = False
    families: tuple[str, ...] = ALL_FAMILIES

    @property
    def held_after(self) -> int:
        """Characters held after each thought."""
        if self.after is not None:
            return self.after
        return 0 if self.thinking else max(self.guard, RELAPSE_GUARD)


class HoldBack:
    """`feed` and `close` for one choice: segments in, events out, in their order.

    dropped: the source of each call so far that was taken out, as a metric's label; dropped_raw: how many of them
    stood in the text. has_call: a call is held. read_speech: finds the calls in an answer that came as reasoning.
    """

    dropped_raw = 0
    has_call = False
    _size = 0  # characters in _held that would be seen
    _visible = False  # visible text has gone out
    _called = False  # a call has gone out
    _told_apart = False  # a thought or a call stood in the text
    _filtered = False  # something was kept from the caller

    def __init__(
        self, choice: int, policy: ThinkPolicy, read_speech: Callable[[str], list[Segment]] | None = None
    ) -> None:
        self.dropped: list[str] = []
        self._choice = choice
        self._policy = policy
        self._read_speech = read_speech
        self._limit = policy.guard  # 0: everything passes
        self._held: list[Event] = []
        self._opened = policy.opened
        self._withheld: list[str] = []  # reasoning that may be the answer
        self._blank: list[Event] = []  # white space before the first word: alone it is nothing

    def feed(self, segment: Segment) -> list[Event]:
        """Events that may go out now."""
        out: list[Event] = []
        if type(segment) is Text or type(segment) is CallArguments or type(segment) is CallStart:
            self._speech(segment, out)
        elif type(segment) is Thought:
            self._thought(segment, out)
        elif type(segment) is ThoughtStart:
            self._told_apart = True
        elif type(segment) is ThoughtEnd:
            self._rearm(out)
        elif type(segment) is Retract:
            self._flush_withheld(out)
            if not segment.field:
                self._retract(out)
        elif type(segment) is Dropped:
            self._drop(segment)
        elif type(segment) is Finish:
            return self._finish(segment)
        else:
            assert type(segment) is Broken
            self._take_held()
            out.append(segment)
        return out

    @property
    def is_visible(self) -> bool:
        """Whether visible text has gone out."""
        return self._visible

    @property
    def is_open(self) -> bool:
        """Whether text passes at once."""
        return self._visible and not self._limit

    @property
    def withholds(self) -> bool:
        """Whether there is reasoning that may be the answer."""
        return bool(self._withheld)

    @property
    def may_be_thinking(self) -> bool:
        """Whether text so far is a thought as long as no tag says otherwise."""
        return self._opened and self._limit > 0

    def close(self, reason: str = "") -> list[Event]:
        """Gives back what is held; `reason` is the finish reason.

        Text that is held when a stream breaks (reason "") was never known to be speech, and is not shown.
        """
        out: list[Event] = []
        if reason in CUT and self.may_be_thinking:
            self._take_back(out)
        if not reason:
            self._take_held()
        self._release(out)
        is_all = reason == "stop" and not (self._visible or self._told_apart)
        answer = "".join(self._withheld).lstrip("\r\n") if is_all else ""
        if answer:
            self._withheld = []
            self._answer(answer, out)
        self._flush_withheld(out)
        self._flush_blank(out)
        return out

    def _answer(self, text: str, out: list[Event]) -> None:
        """Reasoning turned out to be the answer, and so speech like any other."""
        for segment in [Text(self._choice, text)] if self._read_speech is None else self._read_speech(text):
            if type(segment) is Dropped:
                self._drop(segment)
            else:
                assert type(segment) is Text or type(segment) is CallStart or type(segment) is CallArguments
                self._show(segment, out)

    def _drop(self, dropped: Dropped) -> None:
        self._filtered = True
        if dropped.source:
            self._told_apart = self._told_apart or not dropped.thought
            self.dropped.append(dropped.source)
            self.dropped_raw += dropped.raw

    def _finish(self, finish: Finish) -> list[Event]:
        out = self.close(finish.reason)
        if self._filtered and not self._visible and finish.reason in _NORMAL:
            message = (
                "all of the engine's reply was thought, or a tool call that is none or that no tool of the request "
                "stands behind, and was filtered out: ask again, or change the request"
            )
            return [*out, Broken(message, FILTERED)]
        return [*out, finish]

    def _speech(self, event: Text | CallStart | CallArguments, out: list[Event]) -> None:
        if self._limit and not self._is_native(event):
            self._held.append(event)
            self.has_call = self.has_call or type(event) is CallStart
            self._size += _size(event)
            if self._size > self._limit:
                self._limit = 0
                self._release(out)
            return
        if self._limit == UNBOUNDED and not self._opened:
            self._held.append(event)
            return
        if self._limit:
            self._before_native(out)
        self._show(event, out)

    def _is_native(self, event: Event) -> bool:
        """A call that the engine itself made: it is no part of a thought."""
        return isinstance(event, CallStart | CallArguments) and event.index < RESCUED_INDEX

    def _before_native(self, out: list[Event]) -> None:
        """The engine made a call: what is held before it goes first."""
        self._limit = 0
        if self._opened:
            self._take_back(out)
            self._opened, self._limit = False, self._policy.held_after
        self._release(out)

    def _show(self, event: Event, out: list[Event]) -> None:
        if type(event) is CallArguments:  # sent with their call; without one they are dropped
            self._filtered = self._filtered or not (self._called or event.fragment.isspace())
        elif type(event) is not Text or not event.text.isspace():
            self._called = self._called or type(event) is CallStart
            self._visible = True
            self._flush_withheld(out)
            self._flush_blank(out)
        elif not self._visible:
            self._blank.append(event)
            return
        out.append(event)

    def _flush_blank(self, out: list[Event]) -> None:
        out += self._blank
        self._blank = []

    def _release(self, out: list[Event]) -> None:
        """What was held is speech after all."""
        for event in self._take_held():
            if type(event) is Thought:
                out.append(event)
            else:
                self._show(event, out)

    def _thought(self, thought: Thought, out: list[Event]) -> None:
        policy = self._policy
        if self._opened and thought.kind == "field":  # vLLM #45763: its first words came as content
            self._take_back(out)
            self._opened = False
        if policy.reasoning_is_answer and thought.kind == "field" and not (policy.thinking or self._visible):
            self._withheld.append(thought.text)
            return
        self._filtered = self._filtered or not (policy.thinking or thought.text.isspace())
        if self._held:
            self._held.append(thought)
        else:
            out.append(thought)

    def _rearm(self, out: list[Event]) -> None:
        """A thought is over: so many characters are held again."""
        self._opened = False
        self._size, self._limit = 0, self._policy.held_after
        if not self._limit:
            self._release(out)

    def _retract(self, out: list[Event]) -> None:
        """An orphan closing tag: what is held was a thought."""
        self._take_back(out, always=True)
        self._filtered, self._opened = True, False
        self._limit = self._policy.held_after

    def _take_back(self, out: list[Event], always: bool = False) -> None:
        """Held text becomes an orphan thought, and calls in it were part of the thought.

        `always`: the thought is reported even if its text had gone out already.
        """
        texts: list[str] = []
        kept: list[Event] = []
        held = self._take_held()
        for event in held:
            if type(event) is Text:
                texts.append(event.text)
            elif type(event) is Thought or self._is_native(event):
                kept.append(event)
        if texts or always:
            out.append(Thought(self._choice, "".join(texts), "orphan"))
        out.extend(kept)

    def _take_held(self) -> list[Event]:
        held, self._held, self._size, self.has_call = self._held, [], 0, False
        return held

    def _flush_withheld(self, out: list[Event]) -> None:
        if self._withheld:
            text, self._withheld = "".join(self._withheld), []
            self._filtered = self._filtered or not text.isspace()
            out.append(Thought(self._choice, text, "field"))


def _size(event: Text | CallStart | CallArguments) -> int:
    """Characters of it that a caller would get."""
    if type(event) is Text:
        return len(event.text)
    return len(event.fragment) if type(event) is CallArguments else 1
