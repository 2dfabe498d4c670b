"""The think filter: tells thoughts from speech, on any split of the text.

A thought arrives in the engine's own field, or between think tags inside the text, or as text
before a closing tag whose opening tag was lost (the template wrote it into the prompt, or a token
budget cut the thought). The first two are certain at once. The third is not: what it costs to
catch it is a *guard*, a number of characters held back at the start of a reply until they are
known to be speech. The filter holds nothing else but the shortest suffix that may become a tag.
"""

import sys
from collections.abc import Callable

from msgspec import Struct

from app.stream.events import Event, Finish, Text, Thought
from app.stream.tags import TagSet

UNBOUNDED = sys.maxsize
"""A guard that only a tag or the end of the reply lifts."""

RELAPSE_GUARD = 256
"""Characters held after a thought that nobody asked for: that engine's next tag may be lost too.

The leftover behind a budget cut (llama.cpp #28182) is a sentence or less."""

OPENERS = ("<think>", "<thinking>", "<thought>")
CLOSERS = ("</think>", "</thinking>", "</thought>")
CALL_OPENERS = ("<tool_call>", "<function=")

_IN_SPEECH = TagSet(OPENERS + CLOSERS)
_IN_THOUGHT = TagSet(CLOSERS)
_IN_THOUGHT_WITH_TOOLS = TagSet(CLOSERS + CALL_OPENERS)
_IN_FIELD_WITH_TOOLS = TagSet(CALL_OPENERS)

_CUT = ("length", "")
"""Finish reasons of a reply that did not come to its end; "" is a broken stream."""


class ThinkPolicy(Struct, frozen=True):
    """What the filter may assume of this request.

    thinking: the engine was asked to think.
    guard: characters held at the start of the reply (0 to UNBOUNDED).
    reasoning_is_answer: with thinking off, a reply that came wholly in the reasoning field is the
        answer (vLLM #53284, #19839), not a thought.
    rescue: finds tool calls in a thought that was never closed (vLLM #39056); None without tools.
    """

    thinking: bool = False
    guard: int = 0
    reasoning_is_answer: bool = False
    rescue: Callable[[str], list[Event]] | None = None


class ThinkFilter:
    """`feed` and `close` for one choice. Text in tags becomes Thought; nothing overtakes."""

    def __init__(self, choice: int, policy: ThinkPolicy) -> None:
        self._choice = choice
        self._policy = policy
        self._source = ""  # of the thought we are in: "" (none), "tag" or "field"
        self._held = ""  # a suffix that may become a tag
        self._last = ""  # the character before _held, to know a quoted tag
        self._guard = policy.guard
        self._guarded: list[str] = []  # speech, unless an orphan closing tag follows
        self._guarded_size = 0
        self._suspect: list[str] | None = None  # the thought since something like a call in it
        self._withheld: list[str] = []  # reasoning that may be the answer
        self._strip = True  # newlines before the first word, and after a thought, are no speech
        self._shown = False

    def feed(self, event: Event) -> list[Event]:
        """Events that are certain now."""
        if type(event) is Text:
            return [event] if self.passes(event.text) else self._text(event.text)
        if type(event) is Thought:
            return self._thought(event.text)
        if type(event) is Finish:
            return [*self.close(event.reason), event]
        return [*self._interrupt(), event]

    def passes(self, text: str) -> bool:
        """Whether this text goes through unchanged; the short way for most of a reply."""
        if self._source or self._held or self._guard or self._strip or "<" in text:
            return False
        self._last = text[-1]
        return True

    @property
    def is_open(self) -> bool:
        """Whether we are in a thought, or in text that is one as long as no tag says otherwise."""
        return bool(self._source) or (self._policy.thinking and self._guard > 0)

    @property
    def has_call(self) -> bool:
        """Whether something like a tool call has begun in the thought."""
        if self._suspect is not None:
            return True
        guarded = "".join(self._guarded)
        return any(tag in guarded for tag in CALL_OPENERS)

    def close(self, reason: str = "") -> list[Event]:
        """Gives back everything held; `reason` is the finish reason, "" for a broken stream."""
        out: list[Event] = []
        held, self._held = self._held, ""
        if self._source:
            self._ponder(held, out)
            self._end_unclosed_thought(reason, out)
        elif _IN_SPEECH.is_tag(held):
            self._tag(held, out)
        elif reason in _CUT:
            self._text_was_before_thought(out, held)
        else:
            self._show(held, out)
        self._release(out)
        if self._withheld and reason == "stop" and not self._shown:
            out.append(Text(self._choice, "".join(self._withheld).lstrip("\r\n")))
            self._withheld = []
        self._flush_withheld(out)
        return out

    def _text(self, text: str) -> list[Event]:
        out: list[Event] = []
        if self._source == "field":
            self._ponder(self._take_held(), out)
            self._end_thought(out)
        rest = self._take_held() + text
        while rest:
            rest = self._scan_thought(rest, out) if self._source else self._scan_speech(rest, out)
        return out

    def _thought(self, text: str) -> list[Event]:
        """Reasoning that the engine sent apart."""
        out: list[Event] = []
        if self._source != "field":
            self._text_was_before_thought(out, self._take_held())
            self._source = "field"
        rest = self._take_held() + text
        while rest:
            rest = self._scan_thought(rest, out)
        return out

    def _interrupt(self) -> list[Event]:
        """A call from the engine: it ends a thought, and what is held goes first."""
        out: list[Event] = []
        held = self._take_held()
        if self._source:
            self._ponder(held, out)
            self._end_thought(out)
        else:
            self._text_was_before_thought(out, held)
        self._flush_withheld(out)
        return out

    def _take_held(self) -> str:
        held, self._held = self._held, ""
        return held

    def _scan_speech(self, text: str, out: list[Event]) -> str:
        match, cut = _IN_SPEECH.scan(text, self._last)
        if match is None:
            self._show(text[:cut], out)
            self._held = text[cut:]
            return ""
        before, tag = text[:cut], match.group()
        self._show(before, out)
        self._tag(tag, out)
        return text[match.end() :]

    def _tag(self, tag: str, out: list[Event]) -> None:
        self._last = ">"
        if tag in OPENERS:
            self._release(out)
            self._source = "tag"
            return
        lost = "".join(self._guarded)
        self._guarded, self._guarded_size = [], 0
        out.append(Thought(self._choice, lost, "orphan"))
        self._after_thought()

    def _scan_thought(self, text: str, out: list[Event]) -> str:
        tags = self._thought_tags()
        if tags is None:
            self._ponder(text, out)
            return ""
        match, cut = tags.scan(text, self._last)
        self._ponder(text[:cut], out)
        if match is None:
            self._held = text[cut:]
            return ""
        self._last = ">"
        if match.group() in CLOSERS:
            self._end_thought(out)
        else:
            self._suspect = self._suspect or []
            self._suspect.append(match.group())
        return text[match.end() :]

    def _thought_tags(self) -> TagSet | None:
        if self._source == "tag":
            return _IN_THOUGHT_WITH_TOOLS if self._policy.rescue else _IN_THOUGHT
        return _IN_FIELD_WITH_TOOLS if self._policy.rescue else None

    def _show(self, text: str, out: list[Event]) -> None:
        if self._strip and text:
            text = text.lstrip("\r\n")
            self._strip = not text
        if not text:
            return
        self._last = text[-1]
        if not self._guard:
            self._shown = True
            self._flush_withheld(out)
            out.append(Text(self._choice, text))
            return
        self._guarded.append(text)
        self._guarded_size += len(text)
        if self._guarded_size > self._guard:
            self._release(out)

    def _release(self, out: list[Event]) -> None:
        """What the guard held is speech after all."""
        self._guard = 0
        if self._guarded:
            text = "".join(self._guarded)
            self._guarded, self._guarded_size = [], 0
            self._shown = True
            self._flush_withheld(out)
            out.append(Text(self._choice, text))

    def _ponder(self, text: str, out: list[Event]) -> None:
        if not text:
            return
        self._last = text[-1]
        if self._suspect is not None:
            self._suspect.append(text)
        elif self._may_be_answer():
            self._withheld.append(text)
        else:
            out.append(Thought(self._choice, text, self._source))

    def _may_be_answer(self) -> bool:
        policy = self._policy
        return policy.reasoning_is_answer and self._source == "field" and not (policy.thinking or self._shown)

    def _end_thought(self, out: list[Event]) -> None:
        """The thought closed properly: what looked like a call in it was only a thought."""
        if self._suspect is not None:
            out.append(Thought(self._choice, "".join(self._suspect), self._source))
            self._suspect = None
        self._source = ""
        self._after_thought()

    def _after_thought(self) -> None:
        self._strip = True
        self._guard = 0 if self._policy.thinking else max(self._policy.guard, RELAPSE_GUARD)

    def _end_unclosed_thought(self, reason: str, out: list[Event]) -> None:
        """The reply ended inside a thought: calls in it survive, and nothing of it is spoken."""
        suspect, self._suspect = self._suspect, None
        if suspect is not None and self._policy.rescue and reason:
            out.extend(self._policy.rescue("".join(suspect)))
        elif suspect is not None:
            out.append(Thought(self._choice, "".join(suspect), self._source))
        self._source = ""

    def _flush_withheld(self, out: list[Event]) -> None:
        if self._withheld:
            out.append(Thought(self._choice, "".join(self._withheld), "field"))
            self._withheld = []

    def _text_was_before_thought(self, out: list[Event], held: str) -> None:
        """Guarded text before a thought, or before a cut: with thinking on it was thought too.

        vLLM #45763; and without a reasoning parser a thought that the prompt opened shows no tag
        until it closes, which a reply cut by max_tokens never does.
        """
        if self._policy.thinking and self._guard:
            lost = "".join(self._guarded) + held
            self._guarded, self._guarded_size, self._guard = [], 0, 0
            if lost:
                out.append(Thought(self._choice, lost, "orphan"))
            return
        self._show(held, out)
        self._release(out)
