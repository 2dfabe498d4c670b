"""One call in Qwen3.5's form: `<function=NAME>` `<parameter=K>` V `</parameter>` … `</function>`.

Values are typed by the tool's schema once they are whole, because `50306` begins like `5`. Exactly one
newline is taken off each side of a value (vLLM #48846). Models forget tags: a missing `</parameter>`,
`</function>` or `>` is forgiven where what follows leaves no doubt.
"""

import json
import re
from collections.abc import Callable

from app.stream.hermes import MAX_CALL_CHARS, MAX_NAME_CHARS, NotACall
from app.stream.schema import Tools

MAX_KEY_CHARS = 256
"""Longest name of a parameter."""

_NAME = re.compile(rf"[A-Za-z0-9_.:/-]{{1,{MAX_NAME_CHARS}}}")
_VALUE_ENDS = ("</parameter>", "<parameter=", "</function>", "</tool_call>")
_BODY_TAGS = (*_VALUE_ENDS, "<function=", "<tool_call>")
_NAME_END = re.compile(r"[>\n]")
_VALUE_END = re.compile("|".join(re.escape(tag) for tag in _VALUE_ENDS))
_BEGINNINGS = frozenset(tag[:n] for tag in _BODY_TAGS for n in range(1, len(tag)))
_LONGEST = max(len(tag) for tag in _BODY_TAGS)


class XMLCall:
    """Feed it the text after `<function=` until it is `done`; then read `name` and `arguments`."""

    def __init__(self, tools: Tools) -> None:
        self.name: str | None = None
        self.done = False
        self.wrapper_closed = False  # a `</tool_call>` was part of the end
        self.reopened = ""  # the tag of a next call, when it was what ended this one
        self._has_parameters = False
        self._tools = tools
        self._state: Callable[[str, int], int] = self._in_name
        self._name_parts: list[str] = []  # of a name or a key that is not whole
        self._name_size = 0
        self._held = ""  # a tag that is not whole
        self._key = ""
        self._value: list[str] = []
        self._pairs: list[str] = []  # of the arguments, as JSON
        self._size = 0

    def feed(self, text: str, at: int = 0) -> int:
        """Take `text` from `at` on, up to the end of the call; returns where that is.

        Raises NotACall when the text cannot become a call any more.
        """
        begin = at
        while at < len(text) and not self.done:
            at = self._state(text, at)
        self._size += at - begin
        if self._size > MAX_CALL_CHARS:
            self.done = False
            raise NotACall(f"longer than {MAX_CALL_CHARS} characters")
        return at

    @property
    def arguments(self) -> str:
        """The arguments as a JSON object; of a call that was cut the parameters that are whole, without its end."""
        return "{" + ", ".join(self._pairs) + ("}" if self.done else "")

    def close(self, reason: str) -> None:
        """The reply ended here: what is complete stays. Raises NotACall inside the name."""
        if reason == "length":
            return
        if not self._has_parameters:
            raise NotACall("the reply ended inside the call")
        if self._state == self._in_value:
            self._end_value(self._held)
        self._end()

    # Each state takes text from `at` on and returns where the next one starts.

    def _in_name(self, text: str, at: int) -> int:
        name, at = self._up_to_end(text, at, MAX_NAME_CHARS)
        if name is not None:
            if not _NAME.fullmatch(name):
                raise NotACall("no function name")
            self.name = name
            self._enter(self._in_body)
        return at

    def _in_key(self, text: str, at: int) -> int:
        key, at = self._up_to_end(text, at, MAX_KEY_CHARS)
        if key is not None:
            if not key:
                raise NotACall("a parameter without a name")
            self._key = key
            self._has_parameters = True
            self._enter(self._in_value)
        return at

    def _up_to_end(self, text: str, at: int, limit: int) -> tuple[str | None, int]:
        """What stands before the next `>` or newline; None while neither has come."""
        match = _NAME_END.search(text, at, at + 2 * limit)
        end = len(text) if match is None else match.start()
        self._name_parts.append(text[at:end])
        self._name_size += end - at
        if self._name_size > 2 * limit:
            raise NotACall("a name that is too long")
        if match is None:
            return None, end
        said = "".join(self._name_parts).strip()
        self._name_parts, self._name_size = [], 0
        if len(said) > limit:
            raise NotACall("a name that is too long")
        return said, end + 1

    def _in_body(self, text: str, at: int) -> int:
        """Between parameters: the next tag. Prose is passed over there, but not before the first."""
        start = at
        if not self._held:
            start = text.find("<", at)
            self._pass_over(text[at:] if start < 0 else text[at:start])
            if start < 0:
                return len(text)
        seen = self._held + text[start : start + _LONGEST]
        tag = next((tag for tag in _BODY_TAGS if seen.startswith(tag)), "")
        if tag:
            start += len(tag) - len(self._held)
            self._held = ""
            self._body_tag(tag)
            return start
        if seen in _BEGINNINGS:  # the text ended inside it
            self._held = seen
            return len(text)
        self._pass_over("<")
        start += not self._held
        self._held = ""
        return start

    def _pass_over(self, prose: str) -> None:
        if not self._has_parameters and prose.strip():
            raise NotACall("prose after the function's name")

    def _body_tag(self, tag: str) -> None:
        if tag == "<parameter=":
            self._enter(self._in_key)
        elif tag == "</parameter>":
            self._enter(self._in_body)  # doubled (llama.cpp #24807)
        else:
            self.wrapper_closed = tag == "</tool_call>"
            self.reopened = tag if tag in ("<function=", "<tool_call>") else ""
            self._end()

    def _in_value(self, text: str, at: int) -> int:
        moved = at - len(self._held)
        if self._held:
            text, at, self._held = self._held + text[at:], 0, ""
        else:
            moved = 0
        match = _VALUE_END.search(text, at)
        if match is None:
            cut = _certain_end(text, at)
            self._value.append(text[at:cut])
            self._held = text[cut:]
            return len(text) + moved
        self._end_value(text[at : match.start()])
        self._body_tag(match[0])
        return match.end() + moved

    def _enter(self, state: Callable[[str, int], int]) -> None:
        self._state = state
        self._held = ""

    def _end_value(self, rest: str) -> None:
        assert self.name is not None
        value = ("".join(self._value) + rest).removeprefix("\n").removesuffix("\n")
        key = json.dumps(self._key, ensure_ascii=False)
        self._pairs.append(f"{key}: {self._tools.encode(self.name, self._key, value)}")
        self._value.clear()

    def _end(self) -> None:
        self._has_parameters = self.done = True


def _certain_end(text: str, at: int) -> int:
    """Where the end of a value's text begins that may be the next tag."""
    last = text.rfind("<", max(at, len(text) - _LONGEST))
    return last if last >= 0 and text[last:] in _BEGINNINGS else len(text)
