"""A caller's stop sequences, found in an engine's text, for one that does not say which of them ended its reply. Pure."""

from collections.abc import Sequence

from gates.reply.events import Event, Finish, Text, Thought, Usage

MOST, LONGEST = 16, 64
"""How many sequences are looked for, and of how many characters: each delta is compared with each of them."""


def can_be_found(stops: Sequence[str]) -> bool:
    """Whether these are few and short enough."""
    return 0 < len(stops) <= MOST and all(0 < len(stop) <= LONGEST for stop in stops)


class StopMatcher:
    """`feed` events, get them back without the first stop sequence in their text and all that follows it.

    found: that sequence, once it was said. What may be the beginning of one is held until it is known.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.found: str | None = None
        self._stops = tuple(stops)
        self._longest = max(map(len, stops))
        self._held = ""

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """What may go out. Once a sequence was found, its Finish is the last event, and nothing comes out any more."""
        out: list[Event] = []
        for event in events:
            if self.found is not None:
                break
            if type(event) is Text:
                self._say(event, out)
            else:
                if self._held and type(event) not in (Usage, Thought):
                    out.append(Text(0, self._held))
                    self._held = ""
                out.append(event)
        return out

    def _say(self, event: Text, out: list[Event]) -> None:
        text = self._held + event.text
        places = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if places:
            _, at, self.found = min(places)  # the one that was whole first, as on any split
            self._held = ""
        else:
            at = self._certain(text)
            self._held = text[at:]
        if at:
            out.append(Text(event.choice, text[:at]))
        if self.found is not None:
            out.append(Finish(event.choice, "stop", self.found))

    def _certain(self, text: str) -> int:
        """How much of the text is no beginning of a sequence."""
        for at in range(max(len(text) - self._longest + 1, 0), len(text)):
            if any(stop.startswith(text[at:]) for stop in self._stops):
                return at
        return len(text)
