"""One call in Qwen3.5's form: `<function=NAME>` `<parameter=K>` V `</parameter>` … `</function>`.

Values are typed by the tool's schema. A parameter that can only be a string is handed on while it
is being written; any other waits for its end, because `50306` begins like `5`. Exactly one newline
is taken off each side of a value (vLLM #48846). Models forget tags: a missing `</parameter>`,
`</function>` or `>` is forgiven where what follows leaves no doubt.
"""

import json
import re
from collections.abc import Callable

from app.stream.hermes import NotACall
from app.stream.schema import Tools

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}")
_VALUE_ENDS = ("</parameter>", "<parameter=", "</function>", "</tool_call>")
_BODY_TAGS = (*_VALUE_ENDS, "<function=", "<tool_call>")
PIECE = re.compile(r"[^>=\n]*[>=\n]?")
"""The pieces XMLCall is fed: every tag of the form ends in one of these characters."""
_BEGINNINGS = frozenset(tag[:n] for tag in _VALUE_ENDS for n in range(1, len(tag)))


class XMLCall:
    """Feed it the characters after `<function=`; read `name`, `take()` and `done` in between."""

    def __init__(self, tools: Tools) -> None:
        self.name: str | None = None
        self.done = False
        self.wrapper_closed = False  # a `</tool_call>` was part of the end
        self.reopened = ""  # the tag of a next call, when it was what ended this one
        self.committable = False
        self._tools = tools
        self._state: Callable[[str], None] = self._in_name
        self._buffer = ""
        self._key = ""
        self._open = False  # a string value is being handed on
        self._sent = 0  # characters of the open value already handed on
        self._parts: list[str] = []
        self._pairs = 0

    def feed(self, piece: str) -> None:
        """Take text that holds `>`, `=` or a newline at its end only (see PIECE).

        Raises NotACall when the text cannot become a call any more.
        """
        self._buffer += piece
        self._state(piece[-1])

    def take(self) -> str:
        """Argument text that became certain since the last time."""
        if self._open:
            self._send_certain()
        text = "".join(self._parts)
        self._parts.clear()
        return text

    def close(self, reason: str) -> None:
        """The reply ended here: what is complete stays. Raises NotACall inside the name."""
        if reason == "length":
            return
        if not self.committable:
            raise NotACall("the reply ended inside the call")
        if self._state == self._in_value:
            self._end_value(self._buffer)
        self._end()

    def _in_name(self, last: str) -> None:
        if last not in ">\n":
            return
        name = self._buffer[:-1].strip()
        if not _NAME.fullmatch(name):
            raise NotACall("no function name")
        self.name = name
        self._enter(self._in_body)

    def _in_body(self, last: str) -> None:
        text = self._buffer.lstrip()
        if self.committable and not text.startswith("<"):
            text = text[text.find("<") :] if "<" in text else ""  # prose between parameters
        self._buffer = text
        if text in _BODY_TAGS:
            self._body_tag(text)
        elif text and not any(tag.startswith(text) for tag in _BODY_TAGS):
            if not self.committable:
                raise NotACall("prose after the function's name")
            self._buffer = ""

    def _body_tag(self, tag: str) -> None:
        if tag == "<parameter=":
            self._enter(self._in_key)
        elif tag == "</parameter>":
            self._enter(self._in_body)  # doubled (llama.cpp #24807)
        else:
            self.wrapper_closed = tag == "</tool_call>"
            self.reopened = tag if tag in ("<function=", "<tool_call>") else ""
            self._end()

    def _in_key(self, last: str) -> None:
        if last not in ">\n":
            return
        self._key = self._buffer[:-1].strip()
        if not self._key:
            raise NotACall("a parameter without a name")
        self.committable = True
        self._begin_value()
        self._enter(self._in_value)

    def _in_value(self, last: str) -> None:
        if last not in ">=":
            return
        for tag in _VALUE_ENDS:
            if self._buffer.endswith(tag):
                self._end_value(self._buffer[: -len(tag)])
                self._body_tag(tag)
                return

    def _enter(self, state: Callable[[str], None]) -> None:
        self._state = state
        self._buffer = ""

    def _begin_value(self) -> None:
        assert self.name is not None
        self._parts.append("{" if self._pairs == 0 else ", ")
        self._parts.append(json.dumps(self._key, ensure_ascii=False) + ": ")
        self._pairs += 1
        self._open = self._tools.types(self.name, self._key) == {"string"}
        self._sent = 0
        if self._open:
            self._parts.append('"')

    def _send_certain(self) -> None:
        """Hand on the open string up to what may still be its last newline or the next tag."""
        last = self._buffer.rfind("<")
        cut = last if last >= 0 and self._buffer[last:] in _BEGINNINGS else len(self._buffer)
        text = self._buffer[:cut]
        self._send(text[:-1] if text.endswith("\n") else text)

    def _send(self, value: str) -> None:
        start = max(self._sent, 1 if value.startswith("\n") else 0)
        if len(value) > start:
            self._parts.append(json.dumps(value[start:], ensure_ascii=False)[1:-1])
            self._sent = len(value)

    def _end_value(self, raw: str) -> None:
        value = raw[:-1] if raw.endswith("\n") and raw != "\n" else raw
        if self._open:
            self._send(value)
            self._parts.append('"')
            self._open = False
            return
        assert self.name is not None
        typed = self._tools.coerce(self.name, self._key, value.removeprefix("\n"))
        self._parts.append(json.dumps(typed, ensure_ascii=False))

    def _end(self) -> None:
        self._parts.append("}" if self._pairs else "{}")
        self.committable = self.done = True
