"""The tool-call extractor: calls that arrive as text become calls.

Hermes JSON and Qwen3.5's XML are both accepted at any time: one server may produce either, by
`tool_choice`. A call is handed on as soon as it can be nothing else: its tool is one that the
request declared and its arguments have begun. A call of an unknown tool is handed on when it is
complete. Everything that only looks like a call is text again, in its place; but where the reply
was cut inside what may have become a call, that is not spoken.
"""

from app.stream.events import (
    Broken,
    CallArguments,
    CallStart,
    Event,
    Finish,
    Text,
)
from app.stream.fences import Fences
from app.stream.hermes import HermesCall, NotACall
from app.stream.schema import Tools
from app.stream.tags import TagSet
from app.stream.xmlcall import PIECE, XMLCall

_WRAPPER, _WRAPPER_END, _FUNCTION = "<tool_call>", "</tool_call>", "<function="
_OPENERS = TagSet((_WRAPPER, _FUNCTION))

_CUT = ("length", "")
"""Finish reasons of a reply that did not come to its end; "" is a broken stream."""

RESCUED_INDEX = 1 << 16
"""Rescued calls count from here, so that they never share an index with the engine's own."""


class CallExtractor:
    """`feed` and `close` for one choice; only built when the request declared tools."""

    def __init__(self, choice: int, tools: Tools) -> None:
        self._choice = choice
        self._tools = tools
        self._state = self._in_text
        self._held = ""
        self._last = ""
        self._fences = Fences()
        self._raw: list[str] = []  # of the candidate, to give back if it is no call
        self._call: HermesCall | XMLCall | None = None
        self._wrapped = False
        self._started = False
        self._index = RESCUED_INDEX - 1
        self._swallow = False  # whitespace after a call is no speech

    def feed(self, event: Event) -> list[Event]:
        """Events that are certain now."""
        if type(event) is Text:
            if self.passes(event.text):
                return [event]
            out: list[Event] = []
            rest, self._held = self._held + event.text, ""
            while rest:
                rest = self._state(rest, out)
            return out
        reason = event.reason if type(event) is Finish else "interrupted"
        return [*self.close(reason), event]

    def passes(self, text: str) -> bool:
        """Whether this text goes through unchanged; the short way for most of a reply.

        Nothing is held or begun, and no character in it is one that any rule looks at.
        """
        if self._held or self._swallow or self._state != self._in_text:
            return False
        if "<" in text or "`" in text or "~" in text or "\n" in text:
            return False
        self._last = text[-1]
        if self._fences.line_may_open:
            self._fences.feed(text)
        return True

    def close(self, reason: str = "") -> list[Event]:
        """Gives back what is held; `reason` is the finish reason, "" for a broken stream."""
        out: list[Event] = []
        while self._state == self._in_call:
            rest = self._close_call(reason, out)
            while rest:
                rest = self._state(rest, out)
        held, self._held = self._held, ""
        if self._state == self._before_call:
            held = "" if reason in _CUT else "".join(self._raw) + held
        elif self._state == self._after_call:
            held = ""  # the beginning of an end tag
        self._state = self._in_text
        self._raw.clear()
        self._say(held, out)
        return out

    def _in_text(self, text: str, out: list[Event]) -> str:
        match, cut = _OPENERS.scan(text, self._last)
        self._say(text[:cut], out)
        if match is None:
            self._held = text[cut:]
            return ""
        tag = match.group()
        if self._fences.inside:
            self._say(tag, out)
        else:
            self._open(tag, wrapped=tag == _WRAPPER)
        return text[match.end() :]

    def _open(self, tag: str, wrapped: bool) -> None:
        self._raw = [tag]
        self._wrapped = wrapped
        if tag == _WRAPPER:
            self._state = self._before_call
        else:
            self._begin(XMLCall(self._tools))

    def _begin(self, call: HermesCall | XMLCall) -> None:
        self._call = call
        self._started = False
        self._state = self._in_call

    def _before_call(self, text: str, out: list[Event]) -> str:
        """After `<tool_call>`: a JSON object, a `<function=`, the end tag, or no call at all."""
        body = text.lstrip()
        if not body:
            self._raw.append(text)
            return ""
        if body[0] == "{":
            self._raw.append(text[: len(text) - len(body)])
            self._begin(HermesCall())
            return body
        for tag in (_FUNCTION, _WRAPPER_END):
            if body.startswith(tag):
                self._raw.append(text[: len(text) - len(body)] + tag)
                if tag == _FUNCTION:
                    self._begin(XMLCall(self._tools))
                else:
                    self._end_wrapper()  # an empty pair says nothing (vLLM #46091)
                return body[len(tag) :]
            if tag.startswith(body):
                self._held = text
                return ""
        return self._give_back(text, out)

    def _in_call(self, text: str, out: list[Event]) -> str:
        call = self._call
        assert call is not None
        taken = 0
        try:
            while taken < len(text) and not call.done:
                size = 1 if isinstance(call, HermesCall) else len(PIECE.match(text, taken)[0])  # type: ignore[index]
                taken += size
                call.feed(text[taken - size : taken])
        except NotACall as why:
            if not call.done:
                self._hand_on(out)  # what was certain before the fault: the same on any split
            if self._started:
                return self._break(str(why), out)
            return self._give_back(text, out)
        self._raw.append(text[:taken])
        self._hand_on(out)
        if call.done:
            self._end_call(call)
        return text[taken:]

    def _hand_on(self, out: list[Event], *, cut: bool = False) -> None:
        call = self._call
        assert call is not None
        if not self._started:
            name, certain = call.name, call.committable or cut
            if name is None or not (call.done or (certain and name in self._tools)):
                return
            self._started = True
            self._index += 1
            source = "rescued" if name in self._tools else "invalid"
            out.append(CallStart(self._choice, self._index, name, None, source))
        fragment = call.take()
        if fragment:
            out.append(CallArguments(self._choice, self._index, fragment))

    def _end_call(self, call: HermesCall | XMLCall) -> None:
        self._call = None
        self._raw.clear()
        self._swallow = True
        self._last = ""
        self._state = self._in_text if call.wrapper_closed else self._after_call
        if isinstance(call, XMLCall) and call.reopened:
            self._open(call.reopened, wrapped=self._wrapped or call.reopened == _WRAPPER)

    def _after_call(self, text: str, out: list[Event]) -> str:
        """Behind a call: its wrapper's end tag, stray braces in the wrapper, or a further call."""
        body = text.lstrip(" \t\r\n}" if self._wrapped else None)
        if not body:
            return ""
        if body[0] == "{" and self._wrapped:
            self._raw = []
            self._begin(HermesCall())
            return body
        for tag in (_WRAPPER_END, _WRAPPER, _FUNCTION):
            if body.startswith(tag):
                self._end_wrapper()
                return body[len(tag) if tag == _WRAPPER_END else 0 :]
            if tag.startswith(body):
                self._held = body
                return ""
        self._end_wrapper()
        return body

    def _end_wrapper(self) -> None:
        self._raw.clear()
        self._swallow = True
        self._state = self._in_text

    def _give_back(self, text: str, out: list[Event]) -> str:
        """No call: its first tag is text, and the rest is looked at again."""
        raw = "".join(self._raw) + text
        tag = _WRAPPER if raw.startswith(_WRAPPER) else _FUNCTION if raw.startswith(_FUNCTION) else raw[:1]
        self._raw.clear()
        self._call = None
        self._state = self._in_text
        self._say(tag, out)
        return raw[len(tag) :]

    def _break(self, why: str, out: list[Event]) -> str:
        """Part of the call has gone out and the rest is not JSON: nothing honest can follow."""
        self._call = None
        self._state = self._in_text
        message = f"the engine's tool call broke off in its arguments: {why}"
        out.append(Broken(message, "tool_call_invalid"))
        return ""

    def _close_call(self, reason: str, out: list[Event]) -> str:
        """The reply ended inside a call. Text to look at again if it was none."""
        call = self._call
        assert call is not None
        self._call, self._state = None, self._in_text
        try:
            if not reason:
                raise NotACall("the stream broke off")
            call.close(reason)
            self._call = call
            self._hand_on(out, cut=reason == "length")
            self._call = None
            if not self._started:
                raise NotACall("the reply ended before the arguments")
        except NotACall as why:
            if not self._started and reason not in _CUT:
                return self._give_back("", out)
            if self._started and reason:
                self._break(str(why), out)
        self._raw.clear()
        return ""

    def _say(self, text: str, out: list[Event]) -> None:
        if self._swallow:
            text = text.lstrip()
            self._swallow = not text
        if text:
            self._last = text[-1]
            self._fences.feed(text)
            out.append(Text(self._choice, text))


def calls_in(choice: int, tools: Tools, text: str) -> list[Event]:
    """The whole calls in a text that is over, as events; what is no call comes back as Text."""
    extractor = CallExtractor(choice, tools)
    return [*extractor.feed(Text(choice, text)), *extractor.close("stop")]
