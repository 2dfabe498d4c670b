"""Replies as lists of items (thoughts, texts and calls), of which one is open at a time: Responses and Messages. Pure."""

from typing import ClassVar

from app.stream.encode import EventEncoder, ReplyHead
from gates.reply.events import CallArguments, CallStart, Done, Event, Finish, Text, Thought


class ItemEncoder(EventEncoder):
    """Opens, extends and closes items; an API says what that is on the wire.

    names: what the API calls items of text, thought and call.
    """

    names: ClassVar[tuple[str, str, str]]

    def __init__(self, head: ReplyHead) -> None:
        super().__init__(head)
        self._kind = ""  # of the open item, by its name
        self._finish: Finish | None = None

    def _encode(self, event: Event, out: list[bytes]) -> None:
        text, thought, call = self.names
        if type(event) is Text:
            self._extend(text, event.text, out)
        elif type(event) is Thought:
            if self._head.reasoning == "separate" and event.text:
                self._extend(thought, event.text, out)
        elif type(event) is CallStart:
            self._close(out)
            self._open(call, out, event)
        elif type(event) is CallArguments:
            if self._kind == call:
                self._more(event.fragment, out)
        elif type(event) is Finish:
            self._finish = event
            self._end(out)
        elif type(event) is Done:
            self._done(out)

    def _extend(self, kind: str, text: str, out: list[bytes]) -> None:
        if self._kind != kind:
            self._close(out)
            self._open(kind, out)
        self._more(text, out)

    def _open(self, kind: str, out: list[bytes], call: CallStart | None = None) -> None:
        raise NotImplementedError

    def _more(self, text: str, out: list[bytes]) -> None:
        raise NotImplementedError

    def _close(self, out: list[bytes]) -> None:
        """Close the open item, if there is one."""
        raise NotImplementedError

    def _end(self, out: list[bytes]) -> None:
        """The engine has finished: no item follows."""

    def _done(self, out: list[bytes]) -> None:
        """All is known, with the counts."""
