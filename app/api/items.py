"""Replies as lists of items, of which one is open at a time: a text, a thought or a call. Pure."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from app.stream.encode import EventEncoder, ReplyHead
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


class Collector(EventEncoder):
    """`feed` events, then take the whole reply by `message`, in the words of an API. `open`: the item that grows.

    An API that streams items says in a subclass, by `_on_…`, what each step is on the wire.
    """

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self.items: list[Item] = []
        self.open: Item | None = None
        self.finish: Finish | None = None
        self.tokens: list[TokenLogprob] = []

    def texts(self, texts: Sequence[str]) -> bytes:
        return self.feed([Text(0, "".join(texts))])

    def _encode(self, event: Event, out: list[bytes]) -> None:
        if type(event) is Text:
            self._add("text", event.text, out)
        elif type(event) is Thought:
            if self._head.reasoning == "separate" and event.text:
                self._add("thought", event.text, out)
        elif type(event) is CallArguments:
            if self.open is not None and self.open.kind == "call":
                self._add("call", event.fragment, out)
        elif type(event) is CallStart:
            self._begin("call", out, event)
        elif type(event) is Logprobs:
            self.tokens.extend(event.tokens) if event.tokens else self.tokens.clear()
        elif type(event) is Finish:
            self.finish = event
            self._end(out)
        elif type(event) is Done:
            self._on_done(out)

    def _add(self, kind: ItemKind, text: str, out: list[bytes]) -> None:
        item = self.open
        if item is None or item.kind != kind:
            item = self._begin(kind, out)
        if text:
            item.parts.append(text)
            self._on_text(item, text, out)

    def _begin(self, kind: ItemKind, out: list[bytes], call: CallStart | None = None) -> Item:
        self._end(out)
        self.open = item = Item(kind, len(self.items), [], call)
        self.items.append(item)
        self._on_begin(item, out)
        return item

    def _end(self, out: list[bytes]) -> None:
        item, self.open = self.open, None
        if item is not None:
            self._on_end(item, out)

    def _on_begin(self, item: Item, out: list[bytes]) -> None:
        """An item is open that is still empty."""

    def _on_text(self, item: Item, text: str, out: list[bytes]) -> None:
        """The open item has more text."""

    def _on_end(self, item: Item, out: list[bytes]) -> None:
        """The item is over."""

    def _on_done(self, out: list[bytes]) -> None:
        """All is known, with the counts."""

    def said(self, kind: str) -> str:
        """All text of this kind."""
        return "".join(item.text for item in self.items if item.kind == kind)

    def message(self) -> bytes:
        """The reply as JSON."""
        raise NotImplementedError
