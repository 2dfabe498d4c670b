"""The audit of one reply: what was kept from the caller, and what went wrong. Pure."""

from collections.abc import Collection, Sequence

from gates.detect.live import find_violations
from gates.reply.events import CallArguments, CallStart, Event, Finish, Text, Thought

_LABELS = {"raw_call": "raw_tool_call", "template": "broken_template"}
"""Detectors whose label in manners_breach_total is another word."""


class ReplyAudit:
    """Feed it what the stream core gave; read the counts when the reply is over.

    parts: the audits of several choices, which this one joins. Each is judged by itself: alike is no loop.
    """

    def __init__(self, thinking: bool, parts: Sequence["ReplyAudit"] = ()) -> None:
        self._thinking = thinking
        self._parts = parts
        self._text: list[str] = []
        self.text = self._text.append  # one piece of visible text; no method, for it is called for each chunk
        self.calls: list[tuple[str, list[str]]] = []  # names, and the fragments of their arguments
        self.reason: str | None = None  # of the last choice that ended
        self.stripped: set[str] = set()
        self.dropped = 0  # tool calls in the text that were taken out of it
        for part in parts:
            self.calls += part.calls
            self.reason = part.reason or self.reason
            self.stripped |= part.stripped
            self.dropped += part.dropped

    def feed(self, events: Sequence[Event]) -> None:
        for event in events:
            if type(event) is Text:
                self._text.append(event.text)
            elif type(event) is Thought:
                self.stripped.add(event.kind)
            elif type(event) is CallStart:
                self.calls.append((event.name, []))
            elif type(event) is CallArguments and self.calls:
                self.calls[-1][1].append(event.fragment)
            elif type(event) is Finish:
                self.reason = event.reason

    @property
    def said(self) -> str:
        """The text that the caller got, without thoughts and calls."""
        return "".join(self._text)

    @property
    def is_judgeable(self) -> bool:
        """Whether there is something to judge: words, a call, a thought, or an end without any."""
        is_judgeable = bool(self._text or self.calls or self.stripped or self.reason)
        return is_judgeable or any(part.is_judgeable for part in self._parts)

    def breaches(self) -> set[str]:
        """Names of the gates' detectors that fired: about 0.15 ms for 300 characters; of a very long reply they read a part."""
        if self._parts:
            return {name for part in self._parts for name in part.breaches()}
        text = self.said
        names = {finding.detector for finding in find_violations(text, calls=len(self.calls))}
        if self.reason != "stop":
            names.discard("empty")
        if self.stripped and not self._thinking:
            names.add("leak")
        if self.dropped:
            names.add("raw_call")
        return {_LABELS.get(name, name) for name in names}


def unasked_thought(stripped: Collection[str], told: bool) -> str | None:
    """The kind of thought that shows that an engine does not obey; None: nothing shows it. One in a field of its own does not.

    `told`: the engine was sent the switch that turns thinking off; without it, it may think in proper tags.
    """
    return next((kind for kind in (("orphan", "tag") if told else ("orphan",)) if kind in stripped), None)
