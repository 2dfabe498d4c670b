"""Calls in an element of XML that has the name of a tool: `<web_search><query>…</query></web_search>`.

Only the request's own tools are looked for, and none that is named like an element of HTML. What stands in such an
element was meant as a call and is none: it is dropped up to the closing tag. Words that stand apart from a tag inside a
line are about the tag, and stay text.
"""

import re

from app.stream.calls import LONGEST_WORDS
from app.stream.dropped_text import DroppedText, DroppingBlock
from app.stream.events import Dropped, Segment
from app.stream.schema import CallRules
from app.stream.tags import Scanner

HTML = frozenset((
    "a", "abbr", "address", "area", "article", "aside", "audio", "b", "base", "body", "br", "button", "canvas",
    "caption", "cite", "code", "col", "data", "datalist", "del", "details", "dfn", "dialog", "div", "dl", "dt",
    "em", "embed", "fieldset", "figure", "font", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head",
    "header", "hr", "html", "i", "iframe", "image", "img", "input", "ins", "kbd", "label", "legend", "li",
    "link", "main", "map", "mark", "menu", "meta", "meter", "nav", "object", "ol", "option", "output", "p",
    "param", "path", "picture", "pre", "progress", "q", "s", "samp", "script", "section", "select",
    "slot", "small", "source", "span", "strong", "style", "sub", "summary", "sup", "svg", "table", "tbody",
    "td", "template", "text", "textarea", "tfoot", "th", "thead", "time", "title", "tr", "track", "u", "ul",
    "var", "video", "wbr",
))  # fmt: skip
"""Elements of HTML and SVG: an answer may hold them, whatever a tool is called."""

MAY_BEGIN = re.compile(r"<(?P<name>[A-Za-z_][\w.-]{0,127}+)")
"""What may be the opening tag of such an element."""
_HEAD = re.compile(r"<(?P<name>[A-Za-z_][\w.-]{0,127}+)(?:[\s/][^<>]{0,256}+)?(?P<end>>)?")
_LONGEST_HEAD = 384
_END = r"</\s{{0,4}}{}\s{{0,4}}>"
_LONGEST_END = 16
"""Characters of a closing tag beside the name."""


def may_be_call(name: str, is_whole: bool, rules: CallRules) -> bool:
    """Whether an element of this name, or one that begins so, may be a call."""
    return (name in rules.tools and name.lower() not in HTML) if is_whole else rules.tools.may_become(name)


class ElementCall(DroppingBlock):
    """`feed` it text from the element's bracket on until it is `done`; what it gives back is not its own.

    thoughts: finds think tags. of_line: only white space stands before it in its line. plain: of what was given back, this is not to be asked again.
    """

    def __init__(self, rules: CallRules, index: int, thoughts: Scanner, of_line: bool) -> None:
        self.done = False
        self.plain = 0
        self.index = index
        self._rules = rules
        self._of_line = of_line
        self._raw = ""  # as long as it may be text
        self._body = 0  # where it begins in `_raw`, once the opening tag is whole
        self._looked = 0  # characters of `_raw` in which no closing tag begins
        self._end: re.Pattern[str] | None = None  # of the closing tag, once the opening one is whole
        self._most = 0  # characters of a closing tag
        self._dropped = DroppedText(thoughts)
        self._is_dropped = False
        self._tail = ""  # of a dropped element: in which its closing tag may have begun

    def feed(self, text: str, out: list[Segment]) -> str:
        """Take text; what is given back when the element is done stands behind it, or is text."""
        if self._is_dropped and self._end is not None:
            return self._in_dropped(self._end, text)
        self._raw += text
        if self._end is None:
            head = _HEAD.match(self._raw)
            if head is None or not self._may_go_on(head):
                return self._as_text()
            if head["end"] is None:
                return ""
            self._body = self._looked = head.end()
            self._end = re.compile(_END.format(re.escape(head["name"])))
            self._most = len(head["name"]) + _LONGEST_END
            if self._raw[head.end() - 2] == "/":
                out.append(Dropped())
                self.done = True
                return self._raw[head.end() :]
        return self._in_body(self._end, out)

    @property
    def raw(self) -> str:
        """What was taken, and may be a call."""
        return self._raw

    @property
    def is_broken(self) -> bool:
        """Whether it is known to be no call, and is dropped to its end."""
        return self._is_dropped

    def _may_go_on(self, head: re.Match[str]) -> bool:
        is_all = head.end() == len(self._raw)
        if head.end() == head.end("name") and is_all:
            return may_be_call(head["name"], False, self._rules)
        may_end = head["end"] is not None or (is_all and head.end() <= _LONGEST_HEAD)
        return may_end and may_be_call(head["name"], True, self._rules)

    def _in_body(self, closing: re.Pattern[str], out: list[Segment]) -> str:
        end = closing.search(self._raw, self._looked)
        said = self._raw[self._body : self._body + LONGEST_WORDS].lstrip()
        if said.startswith(("<", "{", "[")):
            return self._drop(out)
        is_apart = self._raw[self._body : self._body + 1] in (" ", "\t")
        if said and is_apart and not self._of_line:
            return self._as_text()
        if end is not None and end.start() <= self._body + LONGEST_WORDS:
            return self._drop(out)
        if len(self._raw) > self._body + LONGEST_WORDS + self._most:
            return self._as_text()
        self._looked = max(self._body, len(self._raw) - self._most)
        return ""

    def _drop(self, out: list[Segment]) -> str:
        """Meant as a call, and none: what stands in it is to be fed again."""
        out.append(Dropped())
        self._is_dropped = True
        return self._raw[self._body :]

    def _in_dropped(self, closing: re.Pattern[str], text: str) -> str:
        for own, behind in self._dropped.read(text):
            said = self._tail + own if own else ""
            end = closing.search(said)
            if end is not None:
                self.done = True
                return said[end.end() :] + behind
            self._tail = said[-self._most :]
        return ""

    def _as_text(self) -> str:
        self.done, self.plain = True, 1
        return self._raw

    def close(self, reason: str, out: list[Segment]) -> str:
        """The reply ended here, or something else interrupted it. Text to look at again."""
        self.done = True
        if self._is_dropped:
            return ""
        if self._end is None and len(self._raw) > 2:
            out.append(Dropped(""))
            return ""
        return self._as_text()
