"""Replies as lists of items (thoughts, texts and calls), of which one is open at a time: Responses and Messages. Pure."""

from collections.abc import Sequence
from typing import ClassVar

from app.stream.encode import EventEncoder, ReplyHead
from gates.reply.events import CallArguments, CallStart, Done, Event, Finish, Text, Thought


class ItemCollector(EventEncoder):
    """Opens, extends and closes items; an encoder says what each step is on the wire, a collector nothing.

    names: what the API calls items of text, thought and call.
    """

    names: ClassVar[tuple[str, str, str]]

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._kind = ""  # of the open item, by its name
        self._parts: list[str] = []  # of its text
        self._call: CallStart | None = None
        self._items: list[tuple[str, list[str], CallStart | None]] = []  # with the open one
        self._finish: Finish | None = None

    def texts(self, texts: Sequence[str]) -> bytes:
        """Plain texts of choice 0."""
        if self._kind != self.names[0] or self._inliner.is_on:
            return super().texts(texts)
        out: list[bytes] = []
        self._parts += texts
        self._more("".join(texts), out)
        return b"".join(out)

    def _encode(self, event: Event, out: list[bytes]) -> None:
        text, thought, call = self.names
        if type(event) is Text:
            self._extend(text, event.text, out)
        elif type(event) is Thought:
            if self._head.reasoning == "separate" and event.text:
                self._extend(thought, event.text, out)
        elif type(event) is CallStart:
            self._begin(call, out, event)
        elif type(event) is CallArguments:
            if self._kind == call:
                self._extend(call, event.fragment, out)
        elif type(event) is Finish:
            self._finish = event
            self._end(out)
        elif type(event) is Done:
            self._done(out)

    def _extend(self, kind: str, text: str, out: list[bytes]) -> None:
        if self._kind != kind:
            self._begin(kind, out)
        self._parts.append(text)
        self._more(text, out)

    def _begin(self, kind: str, out: list[bytes], call: CallStart | None = None) -> None:
        if self._kind:
            self._close(out)
        self._kind, self._parts, self._call = kind, [], call
        self._items.append((kind, self._parts, call))
        self._open(out)

    def _end(self, out: list[bytes]) -> None:
        """The engine has finished: no item follows."""
        if self._kind:
            self._close(out)
            self._kind = ""

    def _open(self, out: list[bytes]) -> None:
        """An item has begun."""

    def _more(self, text: str, out: list[bytes]) -> None:
        """The open item has more text."""

    def _close(self, out: list[bytes]) -> None:
        """The open item is over."""

    def _done(self, out: list[bytes]) -> None:
        """All is known, with the counts."""

    def message(self) -> bytes:
        """The reply as JSON."""
        raise NotImplementedError
