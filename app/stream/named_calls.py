"""Calls by the name of a tool alone, in a line of their own: `f(x=1)`, `f({"x": 1})`, `f {"x": 1}`, `f: {"x": 1}`.

Only the request's own tools are looked for, where a line begins, and only if the line ends behind the value: with more
words behind it, it is an example that is talked about. What begins like a call and cannot be read is none, and is dropped.
"""

import re

from app.stream.bare_calls import BareCall, Call, calls_in
from app.stream.events import Segment
from app.stream.jsonscan import kind_of
from app.stream.loose_calls import Brackets, python_calls
from app.stream.schema import CallRules
from app.stream.tags import Scanner

_HEAD = re.compile(
    r"(?P<name>[A-Za-z_][\w.-]{0,127}+)"
    r"(?:(?:\(|[ \t]{0,2}+:?[ \t]{0,2}+\{)\s{0,32}+(?:(?P<value>[)}\"'{\[0-9-])|[A-Za-z_]\w{0,127}+\s{0,32}+(?P<named>[=:])?)?"
    r"|[ \t]{0,2}+:?[ \t]{0,2}+)"
)
"""A name, a bracket, and what arguments begin with: a value, the end, or another name and `=` or `:`."""
_LONGEST_HEAD = 256


MAY_CALL = re.compile(r"\(|[ \t]{0,2}+:?[ \t]{0,2}+(?:\{|\Z)")
"""What stands behind a name that may still begin a call: most lines that begin with a tool's name need no `NamedCall`."""


class NamedCall(BareCall):
    """`feed` it a line from a tool's name on until it is `done`; what it gives back is not its own."""

    def __init__(self, choice: int, rules: CallRules, index: int, tags: Scanner) -> None:
        super().__init__(choice, rules, index, tags)
        self._scan = Brackets()
        self._is_python = True

    def _in_head(self, text: str) -> str:
        """A tool's name, and what makes a call of it: once that is there, all of it is to be fed again."""
        assert self._head is not None
        head = self._head + text
        found, tools = _HEAD.match(head), self._rules.tools
        size, name = (found.end(), found["name"]) if found else (0, "")
        is_begun = size <= _LONGEST_HEAD and (tools.may_become(name) if name == head else name in tools)
        if found and is_begun and (found["value"] or found["named"]):
            self._head, self._raw = None, []
            return head
        if is_begun and size == len(head):
            self._head, self._raw = head, [head]
            return ""
        self._raw, self.done = [head], True
        return self._as_text()

    def _calls(self, raw: str) -> list[Call]:
        found = _HEAD.match(raw)
        assert found is not None
        said = raw[found.end("name") :].lstrip(" \t:")
        arguments = said[1:-1].strip() if said.startswith("(") else said
        if arguments.startswith("{"):
            is_object = kind_of(arguments) == "object"
            return calls_in(arguments) or [Call(found["name"], arguments)] if is_object else []
        return [Call(*call) for call in python_calls(f"[{raw}]")]

    def _end(self, rest: str, out: list[Segment]) -> str:
        """The value is whole. What stands behind it decides, before anybody reads it."""
        self._whole = []
        return self._behind(rest, out)

    def _hand_on(self, out: list[Segment]) -> None:
        """Without calls it was meant as one, and is none."""
        self._whole = self._calls("".join(self._raw))
        super()._hand_on(out)

    def _names_a_tool(self, raw: str) -> bool:
        """Its head has shown that."""
        return self._head is None

    def _as_text(self) -> str:
        """A name that makes no call is not looked at again; what stands behind it is."""
        raw = super()._as_text()
        self.is_json = False
        if self._head is not None:
            self.plain = 1
        return raw
