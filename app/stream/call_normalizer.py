"""The tool-call normalizer: whatever an engine did to its tool calls, the caller gets OpenAI's shape.

Indexes count 0, 1, 2 within the choice; each call has an id, and arguments that are at least
`{}`; `finish_reason` is `tool_calls` exactly when calls were made and the reply was not cut.
Fragments of a call follow its start with nothing in between: what is said meanwhile comes behind.
"""

from app.stream.call_reader import MAX_CALL_CHARS
from app.stream.json_value import WHITESPACE, NotJSON, ValueScanner, kind_of
from app.stream.schema import Tools
from gates.reply.events import Broken, CallArguments, CallStart, Event, Finish, Text, Thought

MAX_CALLS = 128
"""Most tool calls in one reply: as many as a request may declare tools (OpenAI's limit)."""


class CallNormalizer:
    """`feed` and `close` for one choice. `sources` lists what became of each call."""

    def __init__(self, choice: int, tools: Tools, id_prefix: str) -> None:
        self._choice = choice
        self._tools = tools
        self._id_prefix = id_prefix
        self._count = 0
        self._open: CallStart | None = None  # as the engine sent it
        self._arguments: _Arguments  # of the open call
        self._waiting: list[Event] = []  # what was said before the open call was complete
        self._nameless: int | None = None  # the index of a call that has no name
        self.is_open = False  # whether what is said now must come through here
        self.sources: list[str] = []

    def feed(self, event: Event) -> list[Event]:
        """The same events, put right."""
        if type(event) is CallStart:
            return self._start(event)
        if type(event) is CallArguments:
            return self._more(event)
        if type(event) is Finish:
            return [*self.close(event.reason), Finish(self._choice, self._reason(event.reason), event.stop)]
        if type(event) is Text or type(event) is Thought:
            return self._say(event)
        return [event]

    def close(self, reason: str = "") -> list[Event]:
        """Ends the open call; a call that was not cut has arguments."""
        if self._open is None:
            return []
        rest = self._arguments.close(is_cut=reason == "length")
        out: list[Event] = [CallArguments(self._choice, self._count - 1, rest)] if rest else []
        if reason != "length" and not self._arguments.is_object():
            self.sources[-1] = "invalid"
        out += self._waiting
        self._open, self._waiting = None, []
        self.is_open = False
        return out

    def _start(self, event: CallStart) -> list[Event]:
        if self._repeats(event):
            return []
        out = self.close()
        if self._count == MAX_CALLS:
            message = f"the engine made more than {MAX_CALLS} tool calls in one reply"
            return [*out, Broken(message, "upstream_too_many_calls")]
        known = event.source != "engine" or event.name in self._tools
        self.sources.append(event.source if known else "invalid")
        self._open, self._arguments, self.is_open = event, _Arguments(), True
        call_id = event.id or f"call_{self._id_prefix}{self._choice}{self._count}"
        out.append(CallStart(self._choice, self._count, event.name, call_id, self.sources[-1]))
        self._count += 1
        return out

    def _repeats(self, event: CallStart) -> bool:
        """Some servers say the name again in every delta of a call."""
        return event == self._open and not self._arguments.is_whole()

    def _more(self, event: CallArguments) -> list[Event]:
        """Fragments belong to the call that is open: engines do not interleave calls."""
        if self._open is None:
            self._count_nameless(event)
            return []
        fragment = self._arguments.feed(event.fragment)
        if self._arguments.size > MAX_CALL_CHARS:
            message = f"the engine sent arguments of more than {MAX_CALL_CHARS} characters"
            return [Broken(message, "upstream_call_too_long")]
        out: list[Event] = [CallArguments(self._choice, self._count - 1, fragment)] if fragment else []
        if self._waiting and self._arguments.is_whole():
            out += self.close()
        return out

    def _count_nameless(self, event: CallArguments) -> None:
        """Arguments without a call: they are dropped, and count as one invalid call."""
        if event.fragment.strip() and event.index != self._nameless:
            self._nameless = event.index
            self.sources.append("invalid")

    def _say(self, event: Text | Thought) -> list[Event]:
        """Words beside a call: they wait until its arguments are whole, or it ends."""
        if self._open is None:
            return [event]
        if self._arguments.is_whole():
            return [*self.close(), event]
        self._waiting.append(event)
        return []

    def _reason(self, reason: str) -> str:
        if self._count and reason in ("stop", "tool_calls", "function_call"):
            return "tool_calls"
        return "stop" if reason in ("tool_calls", "function_call") else reason


class _Arguments:
    """The arguments of one call. `null` and nothing become `{}`, whatever the fragments are."""

    def __init__(self) -> None:
        self.size = 0
        self._lead: list[str] = []  # fragments that may still turn out to be `null`, or nothing
        self._seen = ""  # their text, with whitespace made short
        self._decided = False  # they are something else
        self._said: list[str] = []  # what has gone out
        self._read = 0  # how many of these the scanner has been fed
        self._scanner = ValueScanner()
        self._is_broken = False
        self._lead_char = ""  # which tells the kind of value

    def feed(self, fragment: str) -> str:
        """Take a fragment; returns what may go out now."""
        self.size += len(fragment)
        if self._decided:
            self._said.append(fragment)
            return fragment
        self._lead.append(fragment)
        self._seen = (self._seen + fragment).lstrip(WHITESPACE)
        if self._seen.rstrip(WHITESPACE) == "null":
            self._seen = "null" if self._seen == "null" else "null "
            return ""
        return "" if "null".startswith(self._seen) else self._decide("".join(self._lead))

    def close(self, *, is_cut: bool) -> str:
        """The call is over; returns what is still to go out."""
        if self._decided or (is_cut and self._seen.rstrip(WHITESPACE) != "null"):
            return ""
        return self._decide("{}" if self._seen in ("", "null", "null ") else "".join(self._lead))

    def is_object(self) -> bool:
        """Whether all that went out is one whole JSON object."""
        return kind_of("".join(self._said)) == "object"

    def is_whole(self) -> bool:
        """The same of arguments that may go on: each fragment is read once, however often one asks."""
        if self._is_broken:
            return False
        text = "".join(self._said[self._read :])
        self._read = len(self._said)
        try:
            end = self._scanner.feed(text)
            self._is_broken = bool(text[end:].strip(WHITESPACE))
        except NotJSON:
            self._is_broken = True
        return self._scanner.done and self._lead_char == "{" and not self._is_broken

    def _decide(self, text: str) -> str:
        self._decided, self._lead_char = True, text.lstrip(WHITESPACE)[:1]
        self._lead.clear()
        self._said.append(text)
        return text
