"""The book of calls: whatever an engine did to its tool calls, the caller gets OpenAI's shape.

Indexes count 0, 1, 2 within the choice; each call has an id, and arguments that are at least
`{}`; `finish_reason` is `tool_calls` exactly when calls were made and the reply was not cut.
"""

import json

from app.stream.events import CallArguments, CallStart, Event, Finish
from app.stream.schema import Tools


class CallBook:
    """`feed` and `close` for one choice. `sources` lists what became of each call."""

    def __init__(self, choice: int, tools: Tools, id_prefix: str) -> None:
        self._choice = choice
        self._tools = tools
        self._id_prefix = id_prefix
        self._count = 0
        self._open: CallStart | None = None  # as the engine sent it
        self._arguments: list[str] = []  # of the open call
        self.sources: list[str] = []

    def feed(self, event: Event) -> list[Event]:
        """The same events, put right."""
        if type(event) is CallStart:
            return self._start(event)
        if type(event) is CallArguments:
            return self._more(event)
        if type(event) is Finish:
            return [*self.close(event.reason), Finish(self._choice, self._reason(event.reason), event.stop)]
        return [event]

    def close(self, reason: str = "") -> list[Event]:
        """Ends the open call; a call that was not cut has arguments."""
        if self._open is None:
            return []
        out: list[Event] = []
        text = "".join(self._arguments)
        if not text.strip() and reason != "length":
            text = "{}"
            out.append(CallArguments(self._choice, self._count - 1, text))
        if not _is_object(text) and reason != "length":
            self.sources[-1] = "invalid"
        self._open, self._arguments = None, []
        return out

    def _start(self, event: CallStart) -> list[Event]:
        if self._repeats(event):
            return []
        out = self.close()
        known = event.source != "engine" or event.name in self._tools
        self.sources.append(event.source if known else "invalid")
        self._open = event
        call_id = event.id or f"call_{self._id_prefix}{self._choice}{self._count}"
        out.append(CallStart(self._choice, self._count, event.name, call_id, self.sources[-1]))
        self._count += 1
        return out

    def _repeats(self, event: CallStart) -> bool:
        """Some servers say the name again in every delta of a call."""
        return event == self._open and not _is_object("".join(self._arguments))

    def _more(self, event: CallArguments) -> list[Event]:
        """Fragments belong to the call that is open: engines do not interleave calls."""
        if self._open is None or (event.fragment == "null" and not self._arguments):
            return []
        self._arguments.append(event.fragment)
        return [CallArguments(self._choice, self._count - 1, event.fragment)]

    def _reason(self, reason: str) -> str:
        if self._count and reason in ("stop", "tool_calls", "function_call"):
            return "tool_calls"
        return "stop" if reason in ("tool_calls", "function_call") else reason


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
