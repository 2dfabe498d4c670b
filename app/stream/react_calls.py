"""Calls as ReAct writes them: a line `Action: NAME`, then a line `Action Input: …`.

Both are plain words, so only the request's own tools are looked for, where a line begins. An object in JSON makes a call;
any other input was meant as one, and is dropped with its line.
"""

import re

from app.stream.bare_calls import Call, hand_on
from app.stream.dropped_text import DroppedText, DroppingBlock
from app.stream.events import Dropped, Segment
from app.stream.hermes import MAX_CALL_CHARS
from app.stream.jsonscan import JSONScanner, NotJSON
from app.stream.schema import CallRules
from app.stream.tags import Scanner, beginning

ACTION = "Action"
_NAME = r"(?P<name>[A-Za-z_][\w.-]{0,127}+)"
_HEAD = (
    *(*ACTION, r"[ \t]{0,2}+", ":", r"[ \t]{0,4}+", _NAME, r"[ \t]{0,4}+", r"\r{0,1}", "\n"),
    *(r"\s{0,4}+", *ACTION, " ", *"Input", r"[ \t]{0,2}+", ":"),
)
_WHOLE = re.compile("".join(_HEAD))
_PART = re.compile(beginning(_HEAD))


class ReActCall(DroppingBlock):
    """`feed` it a line from `Action` on until it is `done`; what it gives back is not its own.

    plain: of what was given back, this is not to be asked again. index: of the last call. thoughts: finds think tags.
    """

    def __init__(self, choice: int, rules: CallRules, index: int, thoughts: Scanner) -> None:
        self.done = False
        self.plain = 0
        self.index = index
        self._choice = choice
        self._rules = rules
        self._head = ""
        self._name = ""  # once the head is whole
        self._scan: JSONScanner | None = None
        self._is_dropped = False
        self._dropped = DroppedText(thoughts)

    def feed(self, text: str, out: list[Segment]) -> str:
        """Take text; what is given back when the block is done stands behind it."""
        if not self._name:
            return self._in_head(self._head + text)
        if self._is_dropped:
            return self._in_dropped(text)
        if self._scan is None:
            text = text.lstrip()
            if text and text[0] != "{":
                return self._drop(text, out)
            self._scan = JSONScanner() if text else None
        return self._in_value(text, out)

    def close(self, reason: str, out: list[Segment]) -> str:
        """The reply ended here, or something else interrupted it. Text to look at again."""
        self.done = True
        part = _PART.fullmatch(self._head)
        if not self._name and not (part and part["name"] in self._rules.tools):
            self.plain = 1
            return self._head
        if not self._is_dropped and reason not in ("length", ""):
            out.append(Dropped())
        return ""

    @property
    def raw(self) -> str:
        """What was taken, and may be a call."""
        return self._head if self._scan is None else self._scan.text(0, self._scan.size)

    @property
    def is_broken(self) -> bool:
        """Whether it is known to be no call, and is dropped to its end."""
        return self._is_dropped

    def _in_head(self, head: str) -> str:
        tools = self._rules.tools
        whole = _WHOLE.match(head)
        if whole is not None and whole["name"] in tools:
            self._name = whole["name"]
            return head[whole.end() :]
        part = _PART.fullmatch(head)
        name = part["name"] if part else None
        if part and (name is None or name in tools or (head.endswith(name) and tools.may_become(name))):
            self._head = head
            return ""
        self.done, self.plain = True, 1
        return head

    def _in_value(self, text: str, out: list[Segment]) -> str:
        scan = self._scan
        if scan is None:
            return ""
        before = scan.size
        try:
            at = scan.feed(text)
        except NotJSON:
            self._dropped.begin(scan.text(0, scan.size))
            return self._drop(text[scan.size - before :], out)
        if scan.done:
            self.done = True
            value = scan.text(0, scan.size)
            self.index = hand_on(self._choice, self.index, Call(self._name, value), self._rules, out)
            return text[at:]
        if scan.size <= MAX_CALL_CHARS:
            return ""
        self._dropped.begin(scan.text(0, scan.size))
        return self._drop("", out)

    def _drop(self, text: str, out: list[Segment]) -> str:
        out.append(Dropped())
        self._is_dropped = True
        return self._in_dropped(text)

    def _in_dropped(self, text: str) -> str:
        """Up to the end of the line, or of a thought that begins in it."""
        for own, behind in self._dropped.read(text):
            end = own.find("\n")
            self.done = end >= 0 or not own
            if self.done:
                return own[end:] + behind
        return ""
