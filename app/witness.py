"""What one reply showed of the engine's manners: kept from the caller, or gone wrong. Pure."""

from collections.abc import Sequence

from app.stream.events import CallStart, Event, Finish, Text, Thought


class Witness:
    """Feed it what the stream core gave; read the counts when the reply is over."""

    def __init__(self, thinking: bool) -> None:
        self._thinking = thinking
        self._text: list[str] = []
        self._calls = 0
        self._reason: str | None = None
        self.stripped: set[str] = set()

    def feed(self, events: Sequence[Event]) -> None:
        """Take events in order."""
        for event in events:
            kind = type(event)
            if kind is Text:
                assert isinstance(event, Text)
                self.text(event.text)
            elif kind is Thought:
                assert isinstance(event, Thought)
                self.stripped.add(event.kind)
            elif kind is CallStart:
                self._calls += 1
            elif kind is Finish:
                assert isinstance(event, Finish)
                self._reason = event.reason

    def text(self, text: str) -> None:
        """One piece of visible text."""
        self._text.append(text)

    def breaches(self) -> set[str]:
        """Names of the detectors that fired: leak, raw_tool_call, empty."""
        text = "".join(self._text)
        found = set()
        if self.stripped and not self._thinking:
            found.add("leak")
        if "<tool_call>" in text or "<function=" in text:
            found.add("raw_tool_call")
        if self._reason == "stop" and not text.strip() and not self._calls:
            found.add("empty")
        return found
