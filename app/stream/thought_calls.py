"""A call within a thought, followed only as far as to know whether a place in it is inside an argument.

A closing tag there may be a part of the argument, or the end of a thought that broke off in the middle of a call. What
comes next tells: behind the end of an argument goes on what only a call has. Until then the tag is in doubt
(`app.stream.segmenter`). Strings stand in either kind of quotes, in quotes as HTML writes them, or in those of a family
(Gemma's `<|"|>`), and only some of them hold a line end; brackets, keys and separators follow each other as in JSON, JSON with
loose quotes or a call of a function. A parameter in XML stands behind its function's name; any other element behind the tag
of a call holds an argument, too (`<arg_value>`, `<parameter name="…">`). Prose is over after two words.
"""

import re
from collections.abc import Callable

from app.stream.hermes import MAX_CALL_CHARS
from app.stream.jsonscan import MAX_DEPTH
from app.stream.tags import CALL_ENDERS, CALL_OPENERS

LONGEST_HEADER = 128
"""Characters between a tag and the first bracket behind it: a name, where a family has one there."""
_MOST_SLASHES = 3
"""Backslashes before a quote that begins a string: JSON inside a string of JSON."""
_CLOSES = {"{": "}", "[": "]", "(": ")"}
_ENDS_OF = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019"}
_MARKS_BEGIN = "<&\uff1c"
_HEADER = re.compile(
    rf"(?P<word>\w+)|(?P<bracket>[{{\[(])|(?P<begun>[{_MARKS_BEGIN}])|(?P<other>[^\w{{\[({_MARKS_BEGIN}]+)"
)
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<word>[\w.+$/@-]+)|(?P<bracket>[{\[(])|(?P<end>[}\])])|(?P<mark>[,:;=])"
    rf"|(?P<slash>\\+)|(?P<quote>[\"'\u201c\u2018])|(?P<begun>[{_MARKS_BEGIN}])|(?P<other>.)"
)
_MARKS_END = ">\uff1e;"
_TAG = re.compile(rf"[^<\uff1c{_MARKS_END}]*[{_MARKS_END}]?")
"""The rest of a tag."""
_ENTITY = re.compile(rf"[^{_MARKS_BEGIN}{_MARKS_END}]*[{_MARKS_END}]?")
_LONGEST_ENTITY = 24
_LT = re.compile(r"&(?:amp;){0,2}(?:lt|#0{0,5}60|#x0{0,5}3c);\Z", re.IGNORECASE)
_GT = re.compile(r"(?:[>\uff1e]|&(?:amp;){0,2}(?:gt|#0{0,5}62|#x0{0,5}3e);)\Z", re.IGNORECASE)
_QUOTE = re.compile(r"&(?:amp;){0,2}(?:quot|apos|#0{0,5}3[49]|#x0{0,5}2[27]);", re.IGNORECASE)
_AMP = re.compile(r"&(?:amp;){1,2}", re.IGNORECASE)
_MARKS_OF_STRINGS = frozenset({'<|"|>', "<escape>"})
"""Gemma 4's quotes, and FunctionGemma's."""
_ELEMENT = re.compile(
    r"<\s{0,4}+(?P<end>[/\uff0f]?+)\s{0,4}+(?P<name>(?:[|\uff5c]\w{1,16}+[|\uff5c])?[^\W\d][\w.:-]{0,63}+)(?![|\uff5c])"
)
_TOKENS_OF_VALUES = {"<|sep|>": "<|close|>"}
"""Kimi K3's, behind the beginning of an element; what ends it."""
_IN_STRING = re.compile(
    r"(?P<line>[\r\n])|(?P<slash>\\+)|(?P<quote>[\"'\u201d\u2019])|(?P<other>[^\r\n\\\"'\u201d\u2019]+)"
)
_BEGIN = re.compile(r"[{(]")
_MARK_BEGUN = re.compile(f"[{_MARKS_BEGIN}]")
_LINE_END = re.compile(r"[\r\n]")
_LABEL_END = re.compile(r"[>\uff1e\n;]")
_FUNCTION = re.compile(r"\s*[\"']?[A-Za-z_][\w.:/-]*[\"']?\s*(?:&gt|&#62|&#x3e)?", re.IGNORECASE)


def begin_of_call(text: str, at: int, end: int, before: str) -> int:
    """Where from `at` on a bracket may begin a call without a tag; `end` if none does. `before`: the character before `text`."""
    for found in _BEGIN.finditer(text, at, end):
        at = found.start()
        last = text[at - 1] if at else before
        if text[at] == "{" or last.isalnum() or last == "_":
            return at
    return end


class ThoughtCall:
    """`feed` it the text behind the tag of a call, and each `tag` in it.

    role: of that tag; "" where a call begins by its bracket. over: it is no call, or its end has come. went_on: since
    this was last set to False, an argument has ended, and the call gone on.
    """

    def __init__(self, role: str) -> None:
        self.over = False
        self.went_on = False
        self._is_bare = self._word = not role  # bare: by a bracket, which a name may stand before
        self._size = 0
        self._state: Callable[[ThoughtCall, str, int, int], int]
        self._state = ThoughtCall._in_label if role == "function" else ThoughtCall._in_header
        self._begun = 0  # characters of the header, or of a name in XML
        self._label: list[str] | None = (
            [] if role == "function" else None
        )  # a function's name, until a parameter comes
        self._brackets: list[str] = []  # those that will close what is open
        self._wants_item = True
        self._has_key = False
        self._quote = ""  # which ends the string
        self._level = 0  # backslashes before it
        self._slashes = 0  # those that were read last
        self._empty = ""  # the quote of an empty string that has just ended
        self._tail = ""  # of a string, what may begin its end, where that is longer than a character
        self._element = ""  # the element that holds the argument
        self._depth = 0  # elements of this name, one in another
        self._begun_mark = ""  # a tag or an entity that is not whole
        self._behind: Callable[[ThoughtCall, str, int, int], int] = (
            ThoughtCall._in_header
        )  # goes on behind it

    @property
    def inside(self) -> bool:
        """Whether this place is in a string of JSON, or in the value of a parameter."""
        return not self.over and (
            self._quote != "" or self._element != "" or self._state is ThoughtCall._in_value
        )

    def feed(self, text: str, at: int, end: int) -> int:
        """Take text without a tag, from `at` to `end`. Returns where it was over, or `end`."""
        begin, least = at, min(end, at + MAX_CALL_CHARS - self._size)
        while at < least and not self.over:
            at = self._state(self, text, at, least)
        self._size += at - begin
        self.over = self.over or least < end
        return at

    def tag(self, role: str, is_open: bool) -> bool:
        """Take a tag of this role; returns whether it stands inside an argument, and says nothing there.

        is_open: the name of what it begins stands behind it.
        """
        if self._begun_mark:
            self._begun_mark, self._state = "", self._behind
            self._take_mark("")
            if self.over:
                return False
        if self._quote:
            self._slashes, self._tail, self._empty = 0, "", ""
            return True
        if self._element or self._state is ThoughtCall._in_value:
            return self._tag_in_value(role, is_open)
        if role == "parameter" and not is_open:
            self._state, self._label, self.over = ThoughtCall._in_value, None, bool(self._brackets)
        elif role == "parameter" and self._state is ThoughtCall._in_body:
            self._state, self._label, self._begun = ThoughtCall._in_key, None, 0
        elif role in CALL_ENDERS:
            self.went_on = True
            self.over = role == "call_end" or bool(self._brackets)
        else:
            self.over = True
        return False

    def _tag_in_value(self, role: str, is_open: bool) -> bool:
        if role in CALL_ENDERS or role == "parameter":
            self.went_on = True
            self.over = role == "call_end"
            is_element, self._element = self._element != "", ""
            self._state = {"parameter": ThoughtCall._in_key, "parameter_end": ThoughtCall._in_body}.get(
                role, ThoughtCall._in_header
            )
            if is_element and role == "parameter_end":
                self._state = ThoughtCall._in_header
            elif role == "parameter" and not is_open:
                self._state = ThoughtCall._in_value
            self._begun = 0
            return False
        self.over = role in CALL_OPENERS  # of another call: this one has broken off
        return not self.over

    # Each state takes text from `at` to `end`, or the first part of it, and returns where the next one starts.

    def _in_header(self, text: str, at: int, end: int) -> int:
        token = _HEADER.match(text, at, end)
        assert token is not None
        self._begun += token.end() - at
        if token.lastgroup == "bracket" and (text[at] != "(" or self._word):
            self._state = ThoughtCall._in_brackets
            self._open(text[at])
        elif token.lastgroup == "begun":
            self._begin_mark(text[at])
        self._word = token.lastgroup == "word"
        self.over = self._begun > LONGEST_HEADER
        return token.end()

    def _begin_mark(self, char: str) -> None:
        self._begun_mark, self._behind, self._state = char, self._state, ThoughtCall._in_mark

    def _in_mark(self, text: str, at: int, end: int) -> int:
        """A tag that the scanner does not know, or an entity. Too long, or behind the beginning of another, it is none."""
        is_entity = self._begun_mark[0] == "&"
        run = (_ENTITY if is_entity else _TAG).match(
            text, at, min(end, at + LONGEST_HEADER - len(self._begun_mark))
        )
        assert run is not None
        mark, at = self._begun_mark + run[0], run.end()
        is_whole = mark[-1] in _MARKS_END and not (is_entity and _AMP.fullmatch(mark))
        if is_whole and mark[-1] == ";":
            last = max(len(mark) - _LONGEST_ENTITY, 0)
            is_tag = _LT.search(mark, last) is not None
            is_whole = not is_tag and (is_entity or _GT.search(mark, last) is not None)
            mark = "<" if is_tag else mark
        self._begun_mark = mark
        if (
            is_whole
            or len(mark) >= LONGEST_HEADER
            or (at < end and text[at] in (_MARKS_BEGIN if is_entity else "<\uff1c"))
        ):
            self._begun_mark, self._state = "", self._behind
            self._begun += len(mark)
            self._take_mark(mark if is_whole else "")
        return at

    def _take_mark(self, mark: str) -> None:
        """A whole one; "" for one that is none."""
        if self._element:
            self._end_element(mark)
        elif self._brackets:
            is_quote = mark in _MARKS_OF_STRINGS or _QUOTE.fullmatch(mark) is not None
            self.over = not (is_quote and self._wants_item)
            self._quote, self._tail = mark, ""
        elif mark in _TOKENS_OF_VALUES:
            self._begin_element(mark)
        elif (element := _ELEMENT.match(_as_tag(mark))) and not (element["end"] or _is_empty(mark)):
            self._begin_element(element["name"])

    def _begin_element(self, name: str) -> None:
        self._element, self._depth, self._state = name, 1, ThoughtCall._in_element

    def _end_element(self, mark: str) -> None:
        """A mark in an element: its end, or the beginning of one of the same name in it."""
        element = _ELEMENT.match(_as_tag(mark))
        if element is not None and element["name"] == self._element:
            self._depth += -1 if element["end"] else not _is_empty(mark)
        elif mark != "" and mark == _TOKENS_OF_VALUES.get(self._element):
            self._depth = 0
        if not self._depth:
            self._element, self._begun, self._state = "", 0, ThoughtCall._in_header
            self.went_on = True

    def _in_element(self, text: str, at: int, end: int) -> int:
        begun = _MARK_BEGUN.search(text, at, end)
        if begun is None:
            return end
        self._begin_mark(begun[0])
        return begun.end()

    def _in_brackets(self, text: str, at: int, end: int) -> int:
        if self._quote:
            return (self._in_string if len(self._quote) == 1 else self._in_long_string)(text, at, end)
        token = _TOKEN.match(text, at, end)
        assert token is not None
        kind, char, was_word = token.lastgroup, text[at], self._word
        empty, self._empty = self._empty, ""
        self._word = kind == "word"
        if self._slashes and kind not in ("slash", "quote"):
            self.over = True
        elif kind == "word":
            self.over = not (self._wants_item or was_word)
            self._wants_item = False
        elif kind == "bracket":
            self.over = not (self._wants_item or was_word) or len(self._brackets) >= MAX_DEPTH
            self._open(char)
        elif kind == "end":
            self._close(char)
        elif kind == "mark":
            self._mark(char)
        elif kind == "slash":
            self._slashes += token.end() - at
            self.over = self._slashes > _MOST_SLASHES
        elif kind == "quote" and char == empty:
            self._quote, self._tail = char * 3, ""
        elif kind == "quote":
            self.over = not self._wants_item
            self._quote, self._level, self._slashes = _ENDS_OF[char], self._slashes, 0
            self._empty = char
        elif kind == "begun":
            self._begin_mark(char)
        else:
            self.over = kind == "other"
        return at + 1 if self.over else token.end()

    def _open(self, bracket: str) -> None:
        self._brackets.append(_CLOSES[bracket])
        self._wants_item, self._has_key = True, False

    def _close(self, bracket: str) -> None:
        self.over = self._brackets[-1] != bracket
        if self.over:
            return
        self._brackets.pop()
        self._wants_item, self._has_key, self.went_on = False, True, True
        if not self._brackets:
            self._state, self._begun = ThoughtCall._in_header, 0
            self.over = self._is_bare

    def _mark(self, mark: str) -> None:
        is_key = mark in ":="
        self.over = self._wants_item or (is_key and self._has_key)
        self.went_on = self.went_on or (is_key and not self.over)
        self._wants_item, self._has_key = True, is_key

    def _in_string(self, text: str, at: int, end: int) -> int:
        token = _IN_STRING.match(text, at, end)
        assert token is not None
        kind, before = token.lastgroup, self._slashes
        is_empty, self._empty = self._empty != "", ""
        self._slashes = before + token.end() - at if kind == "slash" else 0
        self.over = kind == "line"
        is_escaped = before > self._level if self._level else before % 2 == 1
        if kind == "quote" and text[at] == self._quote and not is_escaped:
            self._quote, self._wants_item = "", False
            self._empty = text[at] if is_empty and text[at] in "\"'" else ""
        return token.end()

    def _in_long_string(self, text: str, at: int, end: int) -> int:
        """One whose end is longer than a character; only an entity stands for a quote of JSON, and holds no line end."""
        quote, tail = self._quote, self._tail
        seam = (tail + text[at : min(end, at + len(quote) - 1)]).find(quote)
        begin = text.find(quote, at, end) if seam < 0 else at + seam - len(tail)
        is_whole = seam >= 0 or begin >= 0
        stop = begin + len(quote) if is_whole else end
        if quote[0] == "&" and (line := _LINE_END.search(text, at, stop)):
            self.over = True
            return line.end()
        self._tail = "" if is_whole else (tail + text[max(at, end - len(quote)) : end])[1 - len(quote) :]
        if is_whole:
            self._quote, self._wants_item = "", False
        return stop

    def _in_label(self, text: str, at: int, end: int) -> int:
        """A function's name."""
        at = self._to_end_of_label(text, at, end)
        if self._state is ThoughtCall._in_body:
            self.over = _FUNCTION.fullmatch("".join(self._label or ())) is None
        return at

    def _in_key(self, text: str, at: int, end: int) -> int:
        """A parameter's name."""
        at = self._to_end_of_label(text, at, end)
        if self._state is ThoughtCall._in_body:
            self._state = ThoughtCall._in_value
        return at

    def _to_end_of_label(self, text: str, at: int, end: int) -> int:
        most = min(end, at + LONGEST_HEADER - self._begun)
        match = _LABEL_END.search(text, at, most)
        stop = most if match is None else match.start()
        if self._label is not None:
            self._label.append(text[at:stop])
        self._begun += stop - at
        if match is not None:
            self._state = ThoughtCall._in_body
            return stop + 1
        self.over = self._begun == LONGEST_HEADER
        return stop

    def _in_body(self, text: str, at: int, end: int) -> int:
        """Between parameters; before the first one stands no prose."""
        rest = text[at:end].lstrip()
        if self._label is None or not rest:
            return end
        self._state, self._begun, self._word = ThoughtCall._in_header, 0, False
        self.over = rest[0] != "{" and rest[0] not in _MARKS_BEGIN
        return end - len(rest)

    def _in_value(self, text: str, at: int, end: int) -> int:
        return end


def _as_tag(mark: str) -> str:
    """With an ASCII bracket."""
    return mark.replace("\uff1c", "<", 1)


def _is_empty(tag: str) -> bool:
    return _GT.sub("", tag).rstrip().endswith("/")
