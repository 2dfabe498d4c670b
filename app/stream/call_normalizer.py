"""The tool-call normalizer: whatever an engine did to its tool calls, the caller gets OpenAI's shape.

Indexes count 0, 1, 2; each call has an id, and arguments that are at least `{}`; `finish_reason` is `tool_calls` exactly
when calls were made and the reply was not cut. Fragments of a call follow its start with nothing in between: what is said
meanwhile comes behind.
"""

from app.stream.call_reader import MAX_CALL_CHARS
from app.stream.json_value import WHITESPACE, NotJSON, ValueScanner, kind_of, last_values
from app.stream.schema import Tools
from gates.reply.events import Broken, CallArguments, CallStart, Event, Finish, Text, Thought

MAX_CALLS = 128
"""Most tool calls in one reply: as many as a request may declare tools (OpenAI's limit)."""


class CallNormalizer:
    """`feed` and `close`. `sources` lists what became of each call."""

    def __init__(self, tools: Tools, id_prefix: str) -> None:
        self._tools = tools
        self._id_prefix = id_prefix
        self._count = 0
        self._open: CallStart | None = None  # as the engine sent it
        self._arguments: _Arguments  # of the open call
        self._waiting: list[Event] = []  # what was said before the open call was complete
        self.sources: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether what is said now must come through here."""
        return self._open is not None

    def feed(self, event: Event) -> list[Event]:
        """The same events, put right."""
        if type(event) is CallStart:
            return self._start(event)
        if type(event) is CallArguments:
            return self._more(event)
        if type(event) is Finish:
            return [*self.close(event.reason), Finish(0, self._reason(event.reason), event.stop)]
        if self._open is None or not (type(event) is Text or type(event) is Thought):
            return [event]
        if self._arguments.is_whole():
            return [*self.close(), event]
        self._waiting.append(event)
        return []

    def close(self, reason: str = "") -> list[Event]:
        """Ends the open call; a call that was not cut has arguments."""
        if self._open is None:
            return []
        rest = self._arguments.close(is_cut=reason == "length")
        out: list[Event] = [CallArguments(0, self._count - 1, rest)] if rest else []
        said = "".join(self._arguments.said)
        if reason != "length" and (kind_of(said) != "object" or last_values(said) != said):
            self.sources[-1] = "invalid"
        out += self._waiting
        self._open, self._waiting = None, []
        return out

    def _start(self, event: CallStart) -> list[Event]:
        if event == self._open and not self._arguments.is_whole():
            return []  # some servers say the name again in every delta of a call
        out = self.close()
        if self._count == MAX_CALLS:
            message = f"the engine made more than {MAX_CALLS} tool calls in one reply"
            return [*out, Broken(message, "upstream_too_many_calls")]
        known = event.source != "engine" or event.name in self._tools
        self.sources.append(event.source if known else "invalid")
        self._open, self._arguments = event, _Arguments()
        call_id = event.id or f"call_{self._id_prefix}0{self._count}"
        out.append(CallStart(0, self._count, event.name, call_id, self.sources[-1]))
        self._count += 1
        return out

    def _more(self, event: CallArguments) -> list[Event]:
        """Fragments belong to the call that is open: engines do not interleave calls."""
        if self._open is None:
            if event.fragment.strip() and not self.sources:
                self.sources.append("invalid")  # it has no name
            return []
        fragment = self._arguments.feed(event.fragment)
        if self._arguments.size > MAX_CALL_CHARS:
            message = f"the engine sent arguments of more than {MAX_CALL_CHARS} characters"
            return [Broken(message, "upstream_call_too_long")]
        out: list[Event] = [CallArguments(0, self._count - 1, fragment)] if fragment else []
        if self._waiting and self._arguments.is_whole():
            out += self.close()
        return out

    def _reason(self, reason: str) -> str:
        if self._count and reason in ("stop", "tool_calls", "function_call"):
            return "tool_calls"
        return "stop" if reason in ("tool_calls", "function_call") else reason


class _Arguments:
    """The arguments of one call. `null` and nothing become `{}`, whatever the fragments are."""

    def __init__(self) -> None:
        self.size = 0
        self.said: list[str] = []  # what has gone out
        self._lead = ""  # what may still turn out to be `null`, or nothing
        self._read = 0  # how many of `said` the scanner has been fed
        self._scanner = ValueScanner()
        self._is_broken = False

    def feed(self, fragment: str) -> str:
        """Take a fragment; returns what may go out now."""
        self.size += len(fragment)
        if not self.said:
            fragment = (self._lead + fragment).lstrip(WHITESPACE)
            self._lead = fragment.rstrip(WHITESPACE)
            if "null".startswith(self._lead):
                return ""
            fragment = last_values(fragment)
        self.said.append(fragment)
        return fragment

    def close(self, *, is_cut: bool) -> str:
        """The call is over; returns what is still to go out."""
        if self.said or (is_cut and self._lead != "null"):
            return ""
        self.said.append("{}" if self._lead in ("", "null") else self._lead)
        return self.said[0]

    def is_whole(self) -> bool:
        """Whether all that went out is one whole JSON value; each fragment is read once, however often one asks."""
        text = "".join(self.said[self._read :])
        self._read = len(self.said)
        try:
            is_over = not text[self._scanner.feed(text) :].strip(WHITESPACE)
        except NotJSON:
            is_over = False
        self._is_broken = self._is_broken or not is_over
        return self._scanner.done and not self._is_broken
