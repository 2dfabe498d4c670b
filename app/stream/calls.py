"""A tool call that a model wrote as text: from its opening tag to its end.

Hermes JSON, Qwen3.5's XML, arrays of calls, and Mistral's name before its arguments are accepted behind any
tag that may hold them. A call is handed on when it is whole, so that what became of it does not depend on how
the engine cut its text. Only a reply that `max_tokens` cut ends with a part of one.

What follows an opening tag is one of three things. A valid call becomes events. Prose that only
mentions the tag is text again. Everything else was meant as a call and is none: it is dropped up to
its closing tag, to the next call, or to the end of the reply, and none of it is ever text. A call in a thought
in it is a thought, and is dropped with it.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from app.stream.bare_calls import Call, calls_in, hand_on
from app.stream.events import Dropped, Segment
from app.stream.fences import Fences
from app.stream.hermes import MAX_CALL_CHARS, HermesCall, NotACall
from app.stream.interrupted_call import INTERRUPTED
from app.stream.jsonscan import JSONScanner, NotJSON
from app.stream.open_thoughts import OpenThoughts
from app.stream.schema import CallRules, Tools
from app.stream.tags import CALL_ENDERS, INVISIBLE, Scanner, beginning, call_scanner, family_of
from app.stream.xmlcall import XMLCall

CUT = ("length", "")
"""Finish reasons of a reply that did not come to its end; "" is a broken stream."""

RESCUED_INDEX = 1 << 16
"""Calls from text count from here, so that they never share an index with the engine's own."""

LONGEST_NAME = 128
"""Characters between `<function=` and the end of the name; more is prose."""
LONGEST_WORDS = 512
"""Characters of words behind an opening tag before a closing one shows that they are a call's body; more is prose."""

LONGEST_TRAILER = 256
"""Characters behind a whole call that are held until its closing tag comes. Without one they are
text: models forget that tag."""


LONGEST_FENCE = 64
"""Characters of the line that ends a code fence."""

CALL_SCANNER = call_scanner()
"""Which families are looked for is the segmenter's affair: inside a call the tags of all are."""

Body = Literal["json", "array", "named", "xml", "empty", "again", "broken", "prose"]
_ANY_TAG = re.compile(r"(?:[<\uff1c]|&lt;|&#60;|&#x3c;)(?:[^\W\d_]|[|\uff5c])", re.IGNORECASE)
_BLANKS = re.compile(rf"[\s{INVISIBLE}]*")
_MENTION_END = re.compile(r"[).,;:!?\u2026]{1,8}(?:\s|\Z)")
"""What follows a tag that is only mentioned."""
_WORD = re.compile(r"[A-Za-z_][\w./-]{0,63}")
_ARGUMENTS = re.compile(r"[ \t]{0,8}([{(\[<=:\r\n]|\Z)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}")
_SPACE = r"\s{0,4}"
_NAMED = re.compile(
    rf"\A(?P<name>[A-Za-z_][\w.:/-]{{0,127}}+){_SPACE}(?:(?:\[CALL_ID\]{_SPACE}[\w-]{{1,64}}{_SPACE})?\[ARGS\]{_SPACE})?(?=\{{)"
)
"""What stands between Mistral's token and the arguments: `name{`, `name[ARGS]{`, `name[CALL_ID]id[ARGS]{`."""
_NAMED_PART = re.compile(
    rf"\A[A-Za-z_][\w.:/-]{{0,127}}+{_SPACE}(?:"
    + beginning([*map(re.escape, "[ARGS]"), _SPACE])
    + "|"
    + beginning(
        [*map(re.escape, "[CALL_ID]"), _SPACE, r"[\w-]{1,64}", _SPACE, *map(re.escape, "[ARGS]"), _SPACE]
    )
    + r")?\Z"
)
_HEADER = re.compile(rf"([^<>\n]{{0,{LONGEST_NAME}}}?)(?:[>\uff1e\n]|&gt;|&#62;|&#x3e;)", re.IGNORECASE)
_ARGUMENT = "<param"
"""What stands behind `<function name="NAME">`, where it is a call."""
_BEHIND_NO_TAG = ("[", "{", "<", '"')
"""What stands behind the first character of no tag."""
_FENCE_END = re.compile(r"(?P<marks>`+|~+)[ \t\r]*(?P<line>\n)?")
_TOKEN = re.compile(r'(?P<escape>\\.)|(?P<quote>")|(?P<line>\n)|(?P<space>[^\S\n]+)|(?P<tag>[<\uff1c\u25c1&[`~])|(?P<other>[^\\"\n\s<\uff1c\u25c1&[`~]+|\\)', re.DOTALL)  # fmt: skip


def body_of(text: str, apart: bool, tools: Tools, role: str | None, before: str = "") -> Body | None:
    """What follows a wrapper's tag of this role; None: more text is needed to decide. `text` begins with no space.

    `apart`: there was a space between the tag and the text, and no line end, as in prose. `before`: the
    character before the tag, to know one that is only quoted.
    """
    first = text[0]
    if first == "{":
        return "json"
    if first in "<\uff1c&[" and (found := _tag_in_body(text)) != "prose":
        return found
    if first == "[":
        return "broken" if role == "call" else "array"
    if first in "('\"":
        return "prose" if apart or first == before else "broken"
    if first in "`~":
        fence = first * 3
        return "broken" if text.startswith(fence) else None if fence.startswith(text) else "prose"
    if role != "token":
        return _word_in_body(text, apart, tools)
    if _NAMED.match(text):
        return "named"
    if _NAMED_PART.match(text):
        return None
    return _word_in_body(text, apart, tools)


def _tag_in_body(text: str) -> Body | None:
    if match := CALL_SCANNER.match(text):
        if match.lastgroup in CALL_ENDERS:
            return "empty" if match.lastgroup == "call_end" else "broken"
        return (
            "xml"
            if match.lastgroup == "function"
            else "broken"
            if match.lastgroup == "parameter"
            else "again"
        )
    if CALL_SCANNER.may_become(text):
        return None
    return "broken" if _ANY_TAG.match(text) else "prose"


def _word_in_body(text: str, apart: bool, tools: Tools) -> Body | None:
    word = _WORD.match(text)
    if word is None:
        return "prose"
    if word.end() == len(text):
        return None
    if apart and word[0] not in tools:
        return "prose"
    arguments = _ARGUMENTS.match(text, word.end())
    if arguments is None:
        return "prose"
    return "broken" if arguments[1] else None


def key_of(tag: re.Match[str]) -> str:
    """What a wrapper's tag has in common with its end, and with no element of XML."""
    return f"<{family_of(tag)}"


class CallBlock:
    """`feed` it the text behind an opening tag until it is `done`; what it gives back is not its own.

    literal: the opening tag, when it was prose: then it is text, and so is all that was given back.
    index: of the last call. thoughts: finds think tags. fenced: the block stands in a code fence, where no call is made. of_line: the tag
    begins its line. said: what of the tag is text where it is none.
    """

    plain = 0
    is_json = False

    def __init__(
        self,
        choice: int,
        rules: CallRules,
        thoughts: Scanner,
        tag: re.Match[str],
        before: str,
        fenced: bool,
        index: int,
        of_line: bool = False,
        said: str | None = None,
    ) -> None:
        self.done = False
        self.literal = ""
        self.index = index
        self._choice = choice
        self._rules = rules
        self._thoughts = thoughts
        self._match = tag
        self._tag = tag[0]
        self._said = tag[0] if said is None else said
        self._role = tag.lastgroup
        self._before = before  # the character before the tag
        self._wrapped = self._role not in ("function", "parameter")
        self._fenced = fenced
        self._of_line = of_line
        self._state: Callable[[str, list[Segment]], str]
        self._state = self._before_body if self._wrapped else self._in_header
        self._held = ""
        self._raw: list[str] = []  # behind the tag, as long as it may be no call
        self._words: list[str] = []  # behind the tag, where no tag is, until it is known what they are
        self._words_size = 0
        self._last_word = ""  # the last character of them
        self._apart = self._line_end = False
        self._call: HermesCall | XMLCall | None = None
        self._value = JSONScanner()  # of an array of calls, or of the arguments behind a name
        self._name = ""
        self._header = ""  # the name with its bracket
        if self._role == "parameter" and not self._tag.endswith("="):
            self._header, self._state = ">", self._after_header
        self._quoted = False  # of a dropped block: inside a string
        self._line_start = False  # of a dropped block: only spaces since the line began
        self._open = OpenThoughts()  # in a dropped block
        self._fences = Fences()  # in a dropped block that stands in none
        self._inner_calls = 0  # those that are open in a fence in it

    def feed(self, text: str, out: list[Segment]) -> str:
        """Take text; what is given back when the block is done stands behind it."""
        rest, self._held = self._held + text, ""
        while rest and not self.done:
            rest = self._state(rest, out)
        return rest

    def close(self, reason: str, out: list[Segment]) -> str:
        """The reply ended here, or something else interrupted it. Text to look at again."""
        state, self.done = self._state, True
        if state == self._in_call:
            self._close_call(reason, out)
        elif state == self._in_value and reason not in CUT:
            out.append(Dropped())
        elif state == self._in_trailer or (state == self._after_call and reason == INTERRUPTED):
            return self._held
        elif state == self._in_words:
            return self._prose("")
        elif state in (self._before_body, self._in_header, self._after_header) and reason not in CUT:
            if not self._has_begun:
                return self._prose("")
            out.append(Dropped())
        return ""

    @property
    def raw(self) -> str:
        """What was taken behind the tag, and may be a call."""
        value = self._value.text(0, self._value.size) if self._state == self._in_value else ""
        return self._tag + "".join(self._raw) + value + "".join(self._words) + self._held

    @property
    def is_broken(self) -> bool:
        """Whether it is known to be no call, and is dropped to its end."""
        return self._state == self._in_dropped

    @property
    def half_tag(self) -> str:
        """The end of what it drops, which may become a think tag."""
        return self._held if self._state == self._in_dropped else ""

    @property
    def is_over(self) -> bool:
        """Whether a whole call was read."""
        return self._state in (self._after_call, self._in_trailer)

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open in what it drops."""
        return bool(self._open)

    @property
    def is_wrapper(self) -> bool:
        """Whether its tag is a whole call's, and no part's."""
        return self._wrapped

    @property
    def key(self) -> str:
        """Its tag's (`key_of`)."""
        return key_of(self._match)

    @property
    def _has_begun(self) -> bool:
        """Whether a reply that ends before the body says that a call was meant: a tag at its very end is only mentioned.

        No prose has a special token, a name behind its tag, or a line end and half of the next tag.
        """
        if self._state == self._before_body:
            is_meant = self._is_special or self._line_end or self._held.startswith("<")
            return is_meant and not self._apart and not _MENTION_END.match(self._held)
        name = (self._header or self._held).rstrip(">\n")
        return bool(name) and not any(c.isspace() for c in name)

    @property
    def _is_special(self) -> bool:
        """Whether the tag is a special token, which no prose has."""
        return self._role == "token" or self._tag.startswith(("<|", "<\uff5c"))

    def _before_body(self, text: str, out: list[Segment]) -> str:
        blanks = _BLANKS.match(text)
        assert blanks is not None
        space, body = blanks[0], text[blanks.end() :]
        self._line_end = self._line_end or "\n" in space
        self._apart = (self._apart or bool(space)) and not self._line_end
        if space:
            self._raw.append(space)
        if not body:
            return ""
        kind = body_of(body, self._apart, self._rules.tools, self._role, self._before)
        if kind is None:
            self._held = body
            return ""
        if kind == "prose" and not self._apart:
            mention = _MENTION_END.match(body)
            if body[0] == self._before or (mention is not None and mention.end() < len(body)):
                return self._prose(body)
            if mention is not None:
                self._held = body
                return ""
            if self._is_special:
                return self._drop(body, out)
            self._state = self._in_words
            return body
        if kind == "prose" and self._apart and self._of_line and self._wrapped:
            self._state = self._in_words
            return body
        return self._enter(kind, body, out)

    def _in_words(self, text: str, out: list[Segment]) -> str:
        """Words directly behind the tag, or behind one that begins its line: no valid call if a closing tag comes soon, else prose."""
        tag, at = CALL_SCANNER.scan(text, self._last_word)
        is_long = self._words_size + at > LONGEST_WORDS
        if is_long or (tag is not None and tag.lastgroup not in CALL_ENDERS):
            return self._prose(text)
        if tag is not None:
            return self._drop(self._take_words() + text, out)
        self._hold_words(text, at)
        return ""

    def _hold_words(self, text: str, at: int) -> None:
        """Keep text in which up to `at` there is certainly no tag: that is scanned no more."""
        if at:
            self._words.append(text[:at])
            self._words_size += at
            self._last_word = text[at - 1]
        self._held = text[at:]

    def _take_words(self) -> str:
        words = "".join(self._words)
        self._words.clear()
        return words

    def _enter(self, kind: Body, body: str, out: list[Segment]) -> str:
        if kind == "prose":
            return self._prose(body)
        if kind in ("empty", "again"):  # an empty pair says nothing (vLLM #46091)
            match = CALL_SCANNER.match(body)
            assert match is not None
            self._raw.clear()
            self.done = kind == "empty"
            self._role = match.lastgroup
            return body[match.end() :]
        if kind == "broken" or (kind != "xml" and self._fenced):
            return self._drop(body, out)
        if kind == "json":
            self._begin(HermesCall())
            return body
        if kind in ("array", "named"):
            return self._begin_value(body)
        match = CALL_SCANNER.match(body)
        assert match is not None
        self._raw.append(match[0])
        self._state = self._in_header
        return body[match.end() :]

    def _begin_value(self, body: str) -> str:
        """An array of calls, or a name and then its arguments."""
        named = _NAMED.match(body)
        self._name = "" if named is None else named["name"]
        self._value, self._state = JSONScanner(), self._in_value
        self._raw.clear()
        return body if named is None else body[named.end() :]

    def _in_value(self, text: str, out: list[Segment]) -> str:
        before, is_json = self._value.size, True
        try:
            self._value.feed(text)
        except NotJSON:
            is_json = False
        at, is_json = self._value.size - before, is_json and self._value.size <= MAX_CALL_CHARS
        if is_json and not self._value.done:
            return ""
        value = self._value.text(0, self._value.size)
        if not is_json:
            return self._drop(value + text[at:], out)
        calls = [Call(self._name, value)] if self._name else calls_in(value)
        for call in calls:
            self.index = hand_on(self._choice, self.index, call, self._rules, out)
        if not calls:
            out.append(Dropped())
        self._state = self._after_call
        return text[at:]

    def _in_header(self, text: str, out: list[Segment]) -> str:
        """The name behind `<function=`."""
        header = _HEADER.match(text)
        if header is not None:
            self._raw.append(header[0])
            self._header = header[1] + ("\n" if header[0].endswith("\n") else ">")
            self._state = self._after_header
            return text[header.end() :]
        name, bracket, _ = text.partition("<")
        if not bracket and len(text) <= LONGEST_NAME:
            self._held = text
            return ""
        meant = self._wrapped or (bracket and name and not any(c.isspace() for c in name))
        return self._drop(text, out) if meant else self._prose(text)

    def _after_header(self, text: str, out: list[Segment]) -> str:
        """Behind `<function=NAME>`: a tag or a bracket shows that a call is meant.

        Behind `<parameter=NAME>`, which nothing opened, comes a value up to its end; but words that stand apart
        are prose, and only the tag goes.
        """
        if self._role == "parameter":
            if text[0] not in " \t":
                return self._drop(self._header + text, out)
            out.append(Dropped(""))
            self.done = True
            return text
        body = text.lstrip()
        self._raw.append(text[: len(text) - len(body)])
        if not body:
            return ""
        if not self._wrapped and self._header[0] in "\"'" and body[0] != "{":
            if len(body) < len(_ARGUMENT) and _ARGUMENT.startswith(body):
                self._held = body
                return ""
            if not body.startswith(_ARGUMENT):
                return self._prose(body)  # XML of another kind
        if body[0] == "<" and not self._fenced and _NAME.fullmatch(self._header[:-1].strip()):
            call = XMLCall(self._rules.tools)
            call.feed(self._header)
            self._begin(call)
            return body
        if body[0] in "<&{[" or self._wrapped:
            return self._drop(self._header + body, out)
        return self._prose(body)

    def _begin(self, call: HermesCall | XMLCall) -> None:
        self._call = call
        self._raw.clear()
        self._state = self._in_call

    def _in_call(self, text: str, out: list[Segment]) -> str:
        call = self._call
        assert call is not None
        try:
            taken = call.feed(text)
        except NotACall:
            return self._drop("".join(self._raw) + text, out)
        if not call.done:
            self._raw.append(text)
            return ""
        self._hand_on(call, out)
        return self._end_call(call) + text[taken:]

    def _hand_on(self, call: HermesCall | XMLCall, out: list[Segment]) -> bool:
        """Make events of it. False: it has no name yet, or is a part of a call that nobody declared."""
        name = call.name
        if name is None or not (call.done or name in self._rules.tools):
            return False
        self.index = hand_on(self._choice, self.index, Call(name, call.arguments), self._rules, out)
        return True

    def _end_call(self, call: HermesCall | XMLCall) -> str:
        """Text that the call took and that is not its own: the opening tag of the next one."""
        self._call = None
        self._raw.clear()
        self._state = self._after_call
        self.done = call.wrapper_closed
        if isinstance(call, XMLCall) and call.reopened:
            self.done = True
            return call.reopened
        return ""

    def _after_call(self, text: str, out: list[Segment]) -> str:
        """Behind a call: its wrapper's end tag, stray marks in the wrapper, or a further call."""
        body = text.lstrip(" \t\r\n},;" if self._wrapped else None)
        if not body:
            return ""
        if body[0] == "{" and self._wrapped:
            self._begin(HermesCall())
            return body
        match = CALL_SCANNER.match(body)
        if match is not None:
            if match.lastgroup in CALL_ENDERS:
                self.done = match.lastgroup == "call_end"
                return body[match.end() :]
            self.done = True
            return body
        if CALL_SCANNER.may_become(body):
            self._held = body
        elif self._wrapped and self._role != "token":
            self._state = self._in_trailer
            return body
        else:
            self.done = True
            return body
        return ""

    def _in_trailer(self, text: str, out: list[Segment]) -> str:
        """Text behind a whole call: part of the block if its closing tag follows soon."""
        match, at = CALL_SCANNER.scan(text)
        thought, begin = self._thoughts.scan(text)
        if thought is not None and begin < at:
            self.done = True
            return text
        if match is not None:
            self.done = True
            return text[match.end() :] if match.lastgroup in CALL_ENDERS else text
        if len(text) > LONGEST_TRAILER:
            self.done = True
            return text
        self._held = text
        return ""

    def _prose(self, rest: str) -> str:
        """No call: the tag is text, and what follows it is looked at again."""
        self.literal, self.done = self._said, True
        return "".join(self._raw) + self._take_words() + self._held + rest

    def _drop(self, body: str, out: list[Segment]) -> str:
        """Meant as a call, and none."""
        out.append(Dropped())
        self._call = None
        self._raw.clear()
        self._line_start = self._line_end
        self._fences.feed("\n" if self._line_end else self._tag)
        self._state = self._in_dropped
        return body

    def _in_dropped(self, text: str, out: list[Segment]) -> str:
        """Up to the closing tag. Inside a string that tag closes nothing unless it begins its line; in a thought none does (`app.stream.dropped_text`)."""
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            assert token is not None
            kind = token.lastgroup
            if kind == "tag" and (end := self._end_of_dropped(text, at)) is not None:
                return text[end:]
            if text[at] == "\\" and at + 1 == len(text):
                self._held = "\\"
                return ""
            if kind == "quote" and not self._open:
                self._quoted = not self._quoted
            self._line_start = kind == "line" or (kind == "space" and self._line_start)
            if not self._open:
                self._fences.feed(token[0])
            at = token.end()
        return ""

    def _end_of_dropped(self, text: str, at: int) -> int | None:
        """Where the text behind the block, or behind a tag in it, begins; None: here is no tag. Holds what may be one."""
        if self._quoted and not (self._line_start or self._open):
            return None
        if text[at] in "`~":
            return (
                self._end_of_fence(text, at) if self._fenced and self._line_start and not self._open else None
            )
        if text.startswith(_BEHIND_NO_TAG, at + 1):
            return None
        match = CALL_SCANNER.match(text, at)
        if match is not None:
            opens = match.lastgroup in ("call", "calls", "token")
            is_inner = bool(self._open) or self._is_inner(match, opens)
            self.done = not is_inner and (opens or self._closes(match))
            if not self.done:
                return None
            return at if opens else match.end()
        if CALL_SCANNER.may_become(text, at) or self._thoughts.may_become(text, at):
            self._held = text[at:]
            return len(text)
        tag = self._thoughts.match(text, at)
        if tag is None:
            return None
        self._open.follow(tag.lastgroup, family_of(tag))
        self._line_start = False
        self._fences.feed(tag[0])
        return tag.end()

    def _is_inner(self, tag: re.Match[str], opens: bool) -> bool:
        """Whether this tag belongs to a call in a fence in the dropped block: that call is none either."""
        if not self._fences.inside:
            return False
        if opens:
            self._inner_calls += 1
        elif self._inner_calls and tag.lastgroup == "call_end":
            self._inner_calls -= 1
            return True
        return opens

    def _end_of_fence(self, text: str, at: int) -> int | None:
        """The fence around a block ends the block: its line holds nothing else."""
        fence = _FENCE_END.match(text, at)
        if fence is None or fence.end() - at > LONGEST_FENCE:
            return None
        if fence["line"] is None and fence.end() == len(text):
            self._held = text[at:]
            return len(text)
        self.done = fence["line"] is not None and len(fence["marks"]) >= 3
        return at if self.done else None

    def _closes(self, tag: re.Match[str]) -> bool:
        """Whether this tag ends a dropped block: its wrapper's does, else that of the part it began with."""
        ends = {"function": ("function_end",), "parameter": ("function_end", "parameter_end")}
        return tag.lastgroup == "call_end" or tag.lastgroup in ends.get(self._role or "", ())

    def _close_call(self, reason: str, out: list[Segment]) -> None:
        """The reply ended inside a call."""
        call = self._call
        assert call is not None
        handed_on = False
        if reason:
            with suppress(NotACall):
                call.close(reason)
                handed_on = self._hand_on(call, out)
        if not handed_on and reason not in CUT:
            out.append(Dropped())
