"""Replies as lists of items, of which one is open at a time: a text, a thought or a call. Pure."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec import Struct

from app.stream.encode import EventEncoder, Inliner, ReplyHead
from gates.reply.events import (
    CallArguments,
    CallStart,
    Done,
    Event,
    Finish,
    Logprobs,
    Text,
    Thought,
    TokenLogprob,
    Usage,
)

ItemKind = Literal["text", "thought", "call"]


class Item(Struct):
    """One part of a reply: a text, a thought, or a call with its arguments."""

    kind: ItemKind
    index: int
    parts: list[str]
    call: CallStart | None = None

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Collector:
    """`feed` events, then take the whole reply by `message`, in the words of an API. `open`: the item to which text may be added."""

    def __init__(self, head: ReplyHead) -> None:
        self.head = head
        self.items: list[Item] = []
        self.open: Item | None = None
        self.finish: Finish | None = None
        self.usage: Usage | None = None
        self.tokens: list[TokenLogprob] = []
        self._inliner = Inliner(head.reasoning)

    def feed(self, events: Sequence[Event]) -> None:
        """Take events in order."""
        for event in self._inliner.feed(events):
            self.take(event)

    def texts(self, texts: Sequence[str]) -> None:
        """Plain texts of choice 0."""
        if self.open is None or self.open.kind != "text" or self._inliner.is_on:
            self.feed([Text(0, text) for text in texts])
        else:
            self.open.parts.extend(texts)

    def take(self, event: Event) -> str:
        """Take an event of which thoughts are no more to be inlined; what it adds to the open item."""
        if type(event) is Text:
            if self.open is None or self.open.kind != "text":
                self._begin("text")
            self.items[-1].parts.append(event.text)
            return event.text
        if type(event) is Thought:
            if self.head.reasoning != "separate" or not event.text:
                return ""
            if self.open is None or self.open.kind != "thought":
                self._begin("thought")
            self.items[-1].parts.append(event.text)
            return event.text
        if type(event) is CallArguments:
            if self.open is None or self.open.kind != "call":
                return ""
            self.open.parts.append(event.fragment)
            return event.fragment
        if type(event) is CallStart:
            self._begin("call", event)
        elif type(event) is Logprobs:
            self.tokens.extend(event.tokens) if event.tokens else self.tokens.clear()
        elif type(event) is Usage:
            self.usage = event
        elif type(event) is Finish:
            self.finish, self.open = event, None
        return ""

    def _begin(self, kind: ItemKind, call: CallStart | None = None) -> None:
        self.open = Item(kind, len(self.items), [], call)
        self.items.append(self.open)

    def said(self, kind: str) -> str:
        """All text of this kind."""
        return "".join(item.text for item in self.items if item.kind == kind)

    def message(self) -> bytes:
        """The reply as JSON."""
        raise NotImplementedError


class ItemEncoder(EventEncoder):
    """Collects the reply, and says what each step of it is on the wire."""

    collector: ClassVar[type[Collector]]

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._reply = self.collector(head)
        self._shown = 0  # items that have begun on the wire

    def texts(self, texts: Sequence[str]) -> bytes:
        """Plain texts of choice 0."""
        item = self._reply.open
        if item is None or item.kind != "text" or self._inliner.is_on:
            return super().texts(texts)
        item.parts += texts
        out: list[bytes] = []
        self._more(item, "".join(texts), out)
        return b"".join(out)

    def _encode(self, event: Event, out: list[bytes]) -> None:
        reply, before = self._reply, self._reply.open
        if (
            type(event) is Text and before is not None and before.kind == "text"
        ):  # the short way of most events
            before.parts.append(event.text)
            return self._more(before, event.text, out)
        text = reply.take(event)
        if reply.open is not before or len(reply.items) > self._shown:
            self._turn(before, out)
        if text and reply.open is not None:
            self._more(reply.open, text, out)
        elif type(event) is Done:
            reply.usage = self._usage
            self._done(out)

    def _turn(self, before: Item | None, out: list[bytes]) -> None:
        """One item was open, and another one is now."""
        if before is not None:
            self._close(before, out)
        for item in self._reply.items[self._shown :]:
            self._open(item, out)
            if item is not self._reply.open:
                self._close(item, out)
        self._shown = len(self._reply.items)

    def _open(self, item: Item, out: list[bytes]) -> None:
        """An item has begun."""
        raise NotImplementedError

    def _more(self, item: Item, text: str, out: list[bytes]) -> None:
        """The open item has more text."""
        raise NotImplementedError

    def _close(self, item: Item, out: list[bytes]) -> None:
        """The item is over."""
        raise NotImplementedError

    def _done(self, out: list[bytes]) -> None:
        """All is known, with the counts."""
        raise NotImplementedError
