"""The segmenter: one reading of a reply's text, which knows in every place what a tag means there.

    speech      think tags, the tags of calls, and brackets that may begin a call without a tag
    thought     think tags; a call's tag only in case the thought never ends (vLLM #39056), and to know a think tag
                in an argument, which is in doubt until the call goes on
    call        nothing but the call's own grammar: a think tag in an argument is an argument
    dropped     the end of a block that was meant as a call and is none

A thought arrives in the engine's own field, or between think tags inside the text, or as text before
a closing tag whose opening tag was lost (the template wrote it into the prompt, or a token budget cut
the thought). The first two are certain at once; of the third the segmenter can only say that it
happened (`Retract`), and `app.stream.holdback` decides what was still held back by then. Nothing is
held here but the shortest suffix that may become a tag. Any cut of the text gives the same events.
"""

import re
from itertools import groupby
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from app.stream.bare_calls import BRACKET, BareCall
from app.stream.calls import CUT, RESCUED_INDEX, CallBlock, key_of
from app.stream.element_calls import MAY_BEGIN, ElementCall, may_be_call
from app.stream.events import (
    CallArguments,
    CallStart,
    Dropped,
    Event,
    Finish,
    Retract,
    Segment,
    Text,
    Thought,
    ThoughtEnd,
    ThoughtStart,
)
from app.stream.fences import CALL_FENCE, CallFence, Fences
from app.stream.interrupted_call import INTERRUPTED, Block, InterruptedCall
from app.stream.jsonscan import NotJSON
from app.stream.loose_calls import Brackets
from app.stream.lost_headers import CALL, HARMONY, OF_TEXT, is_meant
from app.stream.named_calls import MAY_CALL, NamedCall
from app.stream.open_thoughts import ANY, OpenThoughts
from app.stream.react_calls import ACTION, ReActCall
from app.stream.schema import CallRules
from app.stream.tags import ALL_CALL_FAMILIES, CALL_ENDERS, CALL_OPENERS, TagSet, family_of, tag_set
from app.stream.thought_calls import ThoughtCall, begin_of_call

_CLOSERS = ("close", "end", "final", "answer_end", "element_end")
_ELEMENTS = ("element", "element_end")
"""Tags that mean something in a thought of their family alone."""
_OPENERS = ("open", "start", "answer")

_BEHIND_CALL = " \t\r\n\f\v},;"
"""What an engine's parser may leave behind a call, besides its end tag; or a model between two."""

_QUOTES = "\"'`"
_BEFORE_NO_LIST = re.compile(r"[A-Za-z0-9_)\]]")
"""What Python's form does not stand behind: `x[f()]` is an index."""
_FIRST_JSON = re.compile(r"\s*(?=[{\[])")
_LINE_JSON = re.compile(r"\n[^\S\n]*(?=[{\[])")
"""JSON that was asked for."""
_LINE_NAME = re.compile(r"(?:\A[\s},;]*+|\n[^\S\n]*+)(?P<name>[A-Za-z_][\w.-]{0,127}+)")
"""What may be the name of a tool, and begin a call by its name alone."""


_ELEMENT = re.compile(r"<(function|parameter)(?=[\s>])")
"""Opening tags in XML whose end tags look like those of a call. The scanner holds such a tag until it is known to be none,
so that it is said in one piece."""

_BLOCK = 128
"""Characters that are read at once: behind each tag the rest of them is copied, so a long delta goes in
blocks, which keeps the work linear. No outcome depends on where a text is cut."""


class _Doubt(Struct):
    """A think tag inside an argument of a call in a thought, and all that came behind it: it may have ended the thought.

    cause: the tag, or the engine did: by a token that is not in the text, or by the field of the answer. before: the
    character before it. held: what was held then; it comes first in `text`.
    """

    cause: Literal["tag", "token", "field"]
    before: str
    held: str
    text: list[str]


class _HalfTag(Struct):
    """Half a tag, before something that is no text. since: what came of its own field behind that, while it may still be a tag."""

    text: str
    since: str = ""


class Segmenter:
    """`feed` and `close` for one choice. `rules` is None when calls are not looked for."""

    _plain_json = 0  # characters of JSON that was no call, which are read again
    _unasked: CallStart | None = None  # the engine's call that is being left out
    _held = ""  # a suffix that may become a tag
    _parted: "_HalfTag | None" = None
    _suspended: OpenThoughts | None = None  # those in the text, while the engine's field has its turn
    _field = False  # the last text came in the engine's reasoning field
    _suspect: list[str] | None = None  # the thought since something like a call in it
    _thought_call: ThoughtCall | None = None  # the call in the thought that is not over
    _doubt: _Doubt | None = None
    _block: Block | InterruptedCall | None = None
    _index = RESCUED_INDEX - 1
    _said = False
    _final_seen = False
    _strip = True  # newlines before the first word, and after a thought, are no speech
    _swallow = False  # white space and stray braces after a call are no speech

    def __init__(self, choice: int, tags: TagSet, rules: CallRules | None) -> None:
        self._choice = choice
        self._rules = rules
        self._tag_set = tags
        self._tags = tags.text
        self._looks_for_json = rules is not None and (rules.bare or rules.json)
        self._looks_for_fences = rules is not None and rules.fences and not rules.json
        self._looks_for_names = rules is not None and rules.bare and not rules.json and bool(rules.tools)
        self._looks_for_actions = self._looks_for_names and not (rules and rules.tools.may_become(ACTION[0]))
        self._line_is_blank = True  # of speech: nothing but white space since the line began
        self._other: Brackets | None = (
            None  # JSON that was no call, while it lasts: what is in its lines is part of it
        )
        # What reads the text; no bound method, with which this would wait for the garbage collector.
        self._state = Segmenter._in_speech
        self._seam: list[tuple[bool, str]] = []  # (from the reasoning field, text) of a tag split over fields
        self._last = ""  # the character before _held, to know a quoted tag
        self._open = OpenThoughts()  # between think tags
        self._fences = Fences()
        self._fences_of_thought = Fences()
        self._elements: dict[str, int] = {}  # of an answer in XML, by name: those that are open
        self._plain = False

    def feed(self, event: Event) -> list[Segment]:
        """Segments that are certain now."""
        if type(event) is Text:
            if self._strip:  # of a word nothing is stripped
                self._plain = self._is_bare and not (self._field or event.text.startswith(("\r", "\n")))
            if self.passes(event.text):
                self._said, self._strip = True, False
                return [event]
            out: list[Segment] = []
            self._take(False, event.text, out)
        elif type(event) is Thought:
            out = []
            self._take(True, event.text, out)
        elif type(event) is Finish:
            out = [*self.close(event.reason), event]
        else:
            out = self._interrupt()
            if type(event) is CallStart:
                self._swallow = True
                self._begin_line()
            self._native(event, out)
        self._plain = self._is_bare and not self._strip
        return out

    @property
    def _is_bare(self) -> bool:
        """Whether we are in speech, and nothing is held or left out."""
        held = self._held or self._seam or self._parted
        return self._state is Segmenter._in_speech and not (held or self._swallow)

    def passes(self, text: str) -> bool:
        """Whether this text goes through unchanged; the short way for most of a reply.

        Nothing is held or begun, and no character in it is one that any rule looks at.
        """
        if not self._plain:
            return False
        if (
            "<" in text
            or "[" in text
            or "&" in text
            or (not text.isascii() and ("\uff1c" in text or "\u25c1" in text))
        ) and self._tags.may_hold(text):
            return False
        if self._rules is not None:
            if "`" in text or "~" in text or "\n" in text:
                return False
            if self._looks_for_names and "<" in text and self._tool_element(text, len(text)) < len(text):
                return False
            if (
                self._looks_for_json
                and (self._other or "{" in text or "[" in text)
                and self._may_begin_json(text)
            ):
                return False
            if self._line_is_blank:
                if self._looks_for_names and self._tool_name(text, len(text)) < len(text):
                    return False
                if not self._rules.json and OF_TEXT.match(text):
                    return False
                self._line_is_blank = text.isspace()
            if self._fences.line_may_open:
                self._fences.feed(text)
        self._last = text[-1]
        return True

    def _may_begin_json(self, text: str) -> bool:
        assert self._rules is not None
        if self._rules.json:
            return self._line_is_blank and _FIRST_JSON.match(text) is not None
        return self._other is not None or BRACKET.search(text) is not None

    @property
    def is_plain(self) -> bool:
        """Whether we are in speech, and nothing is held or stripped."""
        return self._plain

    @property
    def is_thinking(self) -> bool:
        """Whether we are in a thought."""
        return self._field or bool(self._open)

    @property
    def has_call(self) -> bool:
        """Whether something like a tool call has begun and is not over."""
        return self._suspect is not None or self._block is not None or self._doubt is not None

    def end_thought(self) -> list[Segment]:
        """The engine ended its thought by a token that is not in the text."""
        if self._doubt is None and self._thought_call is not None and self._thought_call.inside:
            self._begin_doubt("token")
        if self._doubt is not None:
            return []
        out = self._interrupt()
        self._end_by_engine(out)
        return out

    def _end_by_engine(self, out: list[Segment]) -> None:
        if self._field:
            self._turn(False, out)
        elif self._open:
            self._end_thought(out)
        else:
            self._retract(out)
        self._plain = False

    def close(self, reason: str = "") -> list[Segment]:
        """Gives back everything held; `reason` is the finish reason, "" for a broken stream."""
        out: list[Segment] = []
        self._end_doubt(out)
        self._end_seam(out, goes_on=False, cut=reason in CUT)
        block, self._block = self._block, None
        if self.is_thinking:
            self._ponder(self._take_held(), out)
            self._end_unclosed_thought(reason, out)
        if block is not None:
            self._block = block
            self._close_block(reason, out)
        if self.is_thinking:
            self._ponder(self._take_held(), out)
            self._end_unclosed_thought(reason, out)
        if self._parted is not None:
            self._held, self._parted = self._parted.text + self._parted.since, None
        self._end_half_tag(cut=reason in CUT, out=out)
        self._settle(out)
        return out

    # ------------------------------------------------------------------ which field, and its seam

    def _take(self, field: bool, text: str, out: list[Segment]) -> None:
        for at in range(0, len(text), _BLOCK):
            block = text[at : at + _BLOCK]
            if field != self._field or self._seam:
                block = self._cross(field, block, out)
            if self._parted is not None and block and not field:
                block = self._joined(self._parted, block, out)
            self._read(self._take_held() + block, out)
        if len(text) > _BLOCK:
            _join_texts(out)

    def _read(self, text: str, out: list[Segment]) -> None:
        """Text of one field, in blocks: JSON that was no call is long, and is read again."""
        waiting = [text]
        while waiting:
            rest = waiting.pop()
            if len(rest) > 2 * _BLOCK:
                waiting += [rest[at : at + _BLOCK] for at in range(0, len(rest), _BLOCK)][::-1]
                continue
            rest = self._state(self, self._take_held() + rest if self._held else rest, out)
            if rest:
                waiting.append(rest)

    def _cross(self, field: bool, text: str, out: list[Segment]) -> str:
        """Text came in the other field: a tag may be split between the two. What is left to read."""
        if field != self._field:
            self._end_doubt(out)
        if field != self._field:
            if not field and self._thought_call is not None and self._thought_call.inside:
                self._begin_doubt("field")
                self._field = False
                self._open.clear()
                self._open.open(ANY)
                out.append(ThoughtStart())
                return text
            self._interrupt_block(out)
            held = self._take_held()
            self._turn(field, out)
            if held:
                self._seam.append((not field, held))
        if not self._seam:
            return text
        thought = "".join(part for of_field, part in self._seam if of_field)
        own = "".join(part for of_field, part in self._seam if not of_field) + text
        if thought and not field and self._tags.match(own) is not None:
            out.append(Thought(self._choice, thought, "field"))
            self._seam.clear()
            return own
        joined = "".join(part for _, part in self._seam) + text
        match = self._tags.match(joined)
        if match is None and self._tags.may_become(joined):
            self._seam.append((field, text))
            return ""
        if match is not None:
            rest = joined[match.end() :]
            is_begun_in_thought = thought == self._seam[0][1] and not any(char.isspace() for char in thought)
            said = match[0] if is_begun_in_thought else own[: len(own) - len(rest)]
            self._seam.clear()
            self._seam_tag(match, said, out)
            return rest
        while self._seam and self._seam[-1][0] == field:
            text = self._seam.pop()[1] + text
        self._end_seam(out)
        return text

    def _end_seam(self, out: list[Segment], goes_on: bool = True, cut: bool = False) -> None:
        """What stood at the seam is no tag, or half of one: then only its thoughts are left. The rest may follow in its own field."""
        if not self._seam:
            return
        is_half = self._tags.is_half("".join(part for _, part in self._seam), cut)
        for field, part in self._seam:
            if field:
                out.append(Thought(self._choice, part, "field"))
            elif goes_on and self._field and self._may_be_parted(part):
                self._parted = _HalfTag(part)
            elif is_half or self._tags.is_half(part, cut=False):
                out.append(Dropped(""))
            else:
                self._say(part, out)
        self._seam.clear()

    def _turn(self, field: bool, out: list[Segment]) -> None:
        """The engine goes on in the other field, which ends whatever was open in this one.

        A thought between tags that has words goes on behind the reasoning: its tag was no leftover of a template.
        """
        self._interrupt_block(out)
        goes_on = bool(self._open) and (self._suspect is not None or self._open.has_words)
        self._end_suspect(out)
        if field and self._open:
            self._parted = None
            self._suspended = self._open if goes_on else None
            self._open = OpenThoughts()
        elif not field:
            self._open.clear()
            if self._suspended is not None:
                self._open, self._suspended = self._suspended, None
        self._field, self._fences_of_thought = field, Fences()
        speech = Segmenter._in_speech if self._block is None else Segmenter._in_block
        self._state = Segmenter._in_thought if self.is_thinking else speech
        self._last, self._plain_json = "", 0
        self._begin_line()
        if not field:
            self._strip = True
            out.append(ThoughtEnd())
        if self._open:
            out.append(ThoughtStart())

    def _seam_tag(self, match: re.Match[str], said: str, out: list[Segment]) -> None:
        """A tag that began in the other field than the one that we are in now. said: what of it may be text."""
        role = match.lastgroup
        self._last = ">"
        if role in CALL_OPENERS:
            if self._field:
                self._suspect = [match[0]]
            else:
                self._open_block(match, "", said)
        elif self._field and role in ("close", "final"):
            self._retract(out)
        elif not self._field and role in _OPENERS:
            self._open_thought(family_of(match), out)
        elif not self._field and role in _ELEMENTS:
            self._say(said, out)

    def _interrupt(self) -> list[Segment]:
        """Something that is no text: what is held goes before it."""
        out: list[Segment] = []
        self._end_doubt(out)
        self._end_seam(out)
        self._interrupt_block(out)
        if self.is_thinking:
            if not self._field and self._tags.may_become(self._held):
                self._parted = _HalfTag(self._take_held())
            self._ponder(self._take_held(), out)
            self._end_suspect(out)
        else:
            self._part_tag(out)
            self._settle(out)
        return out

    def _interrupt_block(self, out: list[Segment]) -> None:
        """The engine does something else: a whole call is over, and of any other the rest may follow."""
        block = self._block
        if isinstance(block, InterruptedCall):
            block.interrupt()
        elif block is None or block.is_thinking:
            return
        elif block.is_over:
            self._close_block(INTERRUPTED, out)
        else:
            self._block = InterruptedCall(block, self._tag_set.think, self._tag_set.text)

    def _part_tag(self, out: list[Segment]) -> None:
        """Half a tag, or a bracket alone, stands before something that is no text: the rest of it may stand behind it."""
        held = self._held
        if self._may_be_parted(held):
            self._parted, self._held = _HalfTag(held), ""
        else:
            self._end_half_tag(cut=False, out=out)

    def _may_be_parted(self, held: str) -> bool:
        """Whether this may be half of a tag, or of a header that lost its token."""
        finds_headers = self._rules is not None and not self._rules.json
        return self._tags.may_become(held) or (finds_headers and OF_TEXT.match(held) is not None)

    def _joined(self, half: _HalfTag, text: str, out: list[Segment]) -> str:
        """Text behind something that stood in the middle of a tag, or behind half of one that never was."""
        half.since += text
        joined = half.text + half.since
        is_tag = self._tags.match(joined) is not None
        if not is_tag and self._tags.may_become(joined):
            return ""
        self._parted = None
        is_quoted = self._last in _QUOTES and self._last
        if is_tag or is_quoted or (self._open and not self._field):
            return joined
        if not self._tags.is_half(half.text, cut=False):
            return joined
        out.append(Dropped(""))
        return half.since

    def _settle(self, out: list[Segment]) -> None:
        """What is held in speech has come to its end: a quoted tag whose second quote never came, or text."""
        held, self._plain_json = self._take_held(), 0
        if not held:
            return
        match = self._tags.match(held)
        if (
            match is None
            or match.end() != len(held)
            or match.lastgroup in CALL_OPENERS
            or match.lastgroup in _ELEMENTS
        ):
            self._say(held, out)
        else:
            self._tag(match, out)

    def _end_half_tag(self, *, cut: bool, out: list[Segment]) -> None:
        """The text ends in the middle of a tag: that is no speech. A closing tag does its work without its end."""
        held = self._held
        if not held or (self._last in _QUOTES and self._last):
            return
        if not self._tags.is_half(held, cut):
            if self._rules is not None and not self._rules.json and is_meant(held):
                self._held = ""
                out.append(Dropped(""))
            return
        self._held = ""
        match = self._tags.match(held + ">")
        if match is not None and match.lastgroup == "close":
            self._tag(match, out)
        else:
            out.append(Dropped(""))

    def _take_held(self) -> str:
        held, self._held = self._held, ""
        return held

    # ------------------------------------------------------------------------------------ speech

    def _in_speech(self, text: str, out: list[Segment]) -> str:
        match, cut = self._tags.scan(text, self._last)
        line = self._tool_name(text, cut) if self._looks_for_names else cut
        if self._looks_for_fences and ("`" in text or "~" in text):
            line = self._call_fence(text, line)
        if self._rules is not None and not self._rules.json:
            line = self._lost_header(text, line)
        if self._looks_for_names and "<" in text:
            line = self._tool_element(text, line)
        bracket = self._bracket(text, line) if self._looks_for_json else line
        read = bracket if bracket < cut else cut if match is None else match.end()
        self._plain_json = max(self._plain_json - read, 0)
        if bracket < cut:
            self._say(text[:bracket], out)
            return self._open_bare(text[bracket:], bracket == line, out)
        before = text[cut - 1] if cut else self._last
        self._say(text[:cut], out)
        if match is None:
            self._held = text[cut:]
            return ""
        if match.lastgroup in CALL_OPENERS or match.lastgroup in CALL_ENDERS:
            self._call_tag(match, before, out)
        elif match.lastgroup in _ELEMENTS or self._is_code(match, before):
            self._say(match[0], out)
        else:
            self._tag(match, out)
        return text[match.end() :]

    def _is_code(self, match: re.Match[str], before: str) -> bool:
        """Whether a think tag stands in a code fence as a string, or as a type: `"<think>"`, `Box<Thought>`."""
        if not (before and self._fences.inside):
            return False
        return before in _QUOTES or (match.lastgroup == "open" and (before.isalnum() or before == "_"))

    def _bracket(self, text: str, cut: int) -> int:
        """Where a bracket begins a line, and may begin a call; `cut` if none does before it."""
        assert self._rules is not None
        if self._rules.json:
            found = _FIRST_JSON.match(text, 0, cut) if self._line_is_blank else None
            found = found or _LINE_JSON.search(text, 0, cut)
            return cut if found is None else found.end()
        followed = 0
        for found in BRACKET.finditer(text, self._plain_json, cut):
            at = found.start()
            if not at and self._last and self._last in _QUOTES:
                continue
            if found["name"] and not self._may_be_python(text, found):
                continue
            if self._other is not None and not self._begins_line(text, at):
                self._follow(text[followed:at])
                followed = at
                if self._other is not None:
                    continue
            self._follow(text[followed:at])
            return at
        self._follow(text[followed:cut])
        return cut

    def _may_be_python(self, text: str, found: re.Match[str]) -> bool:
        """Whether a bracket and a name may begin a list in Python's form, here: `BareCall` would ask the same, one by one."""
        assert self._rules is not None
        at, name, tools = found.start(), found["name"], self._rules.tools
        if _BEFORE_NO_LIST.match(text[at - 1] if at else self._last):
            return False
        if name in tools or (found["open"] is None and tools.may_become(name)):
            return True
        return self._begins_line(text, at) and (found["open"] is None or found["called"] is not None)

    def _tool_name(self, text: str, cut: int) -> int:
        """Where a line begins with a tool's name, or with the beginning of one at the end; `cut` if none does."""
        assert self._rules is not None
        tools = self._rules.tools
        for found in _LINE_NAME.finditer(text, 0, cut):
            at, name = found.start("name"), found["name"]
            if at < self._plain_json or not self._begins_line(text, at):
                continue
            if (
                tools.may_become(name)
                if found.end() == len(text)
                else name in tools and MAY_CALL.match(text, found.end())
            ):
                return at
            if self._looks_for_actions and (
                ACTION.startswith(name) if found.end() == len(text) else name == ACTION
            ):
                return at
        return cut

    def _lost_header(self, text: str, cut: int) -> int:
        """Where a line begins with a header that lost its opening token, or with what may become one; `cut` if none does."""
        for found in OF_TEXT.finditer(text):
            at = found.start("head")
            if at > cut:
                break
            is_known = found[HARMONY] is None or HARMONY in self._tag_set.families
            if found[CALL] is not None:  # the token behind it is looked for, too
                is_known = self._tags.match(text, found.end()) is not None
            if is_known and at >= self._plain_json and self._begins_line(text, at):
                return at
        return cut

    def _tool_element(self, text: str, cut: int) -> int:
        """Where an element of XML begins that has a tool's name, or may get one; `cut` if none does."""
        assert self._rules is not None
        for found in MAY_BEGIN.finditer(text, self._plain_json, cut):
            at = found.start()
            before = text[at - 1] if at else self._last
            is_quoted = before != "" and before in _QUOTES
            if not is_quoted and may_be_call(found["name"], found.end() < len(text), self._rules):
                return at
        return cut

    def _call_fence(self, text: str, cut: int) -> int:
        """Where a line begins with a code fence of calls, or with what may become one; `cut` if none does."""
        for found in CALL_FENCE.finditer(text, 0, cut):
            at = found.start("fence")
            if at >= self._plain_json and self._begins_line(text, at):
                return at
        return cut

    def _begins_line(self, text: str, at: int) -> bool:
        """Whether only white space stands before this place in its line; behind a call, what models write there is none."""
        begin = 0
        if self._swallow:
            begin = at - len(text[:at].lstrip(_BEHIND_CALL))
        start = text.rfind("\n", begin, at) + 1
        return bool(start or self._line_is_blank) and not text[start or begin : at].strip()

    def _begin_line(self) -> None:
        """Behind something that is no speech a line begins, for calls and for code fences: the line end may have gone with it."""
        self._line_is_blank = True
        if not self._fences.inside:
            self._fences.feed("\n")

    def _follow(self, text: str) -> None:
        """Text that goes out, as long as it may be part of JSON that was no call."""
        if self._other is not None:
            try:
                self._other.feed(text)
            except NotJSON:
                self._other = None
            else:
                self._other = None if self._other.done else self._other

    def _open_bare(self, text: str, of_line: bool, out: list[Segment]) -> str:
        """Where JSON was asked for, the answer begins with this bracket; else a call may begin, with it, or with a name or a fence (`of_line`)."""
        assert self._rules is not None
        if self._rules.json:
            self._tags, self._looks_for_json = self._tag_set.think, False
        elif self._fences.inside:
            self._say(text[0], out)
            return text[1:]
        elif of_line and not self._lost_header(text, len(text)) and (header := OF_TEXT.match(text)):
            if header["part"] is not None:
                self._held = text
                return ""
            if header[HARMONY] is not None:
                self._open_thought(HARMONY, out)
            else:
                out.append(Dropped(""))
            return text[header.end() :]
        elif text[0] == "<":
            self._block = ElementCall(self._rules, self._index, self._tag_set.think, self._line_is_blank)
            self._state = Segmenter._in_block
        elif of_line and text[0] in "`~":
            self._block = CallFence(self._index, self._tag_set.think)
            self._state = Segmenter._in_block
        elif of_line and self._looks_for_actions and text[0] == ACTION[0]:
            self._block = ReActCall(self._choice, self._rules, self._index, self._tag_set.think)
            self._state = Segmenter._in_block
        elif of_line:
            self._block = NamedCall(self._choice, self._rules, self._index, self._tags)
            self._state = Segmenter._in_block
        else:
            inline = not self._line_is_blank
            self._block = BareCall(self._choice, self._rules, self._index, self._tags, inline)
            self._block.may_be_python = _BEFORE_NO_LIST.match(self._last) is None
            self._state = Segmenter._in_block
        return text

    def _call_tag(self, match: re.Match[str], before: str, out: list[Segment]) -> None:
        """A tag of a call, in speech. Without tools one in a fence is an example."""
        assert self._rules is not None
        ends = match.lastgroup if match.lastgroup in CALL_ENDERS else None
        is_example = self._fences.inside and (ends or not self._rules.tools)
        if is_example or (ends and self._ends_element(ends, match)):
            self._say(match[0], out)
        elif match.lastgroup in CALL_OPENERS:
            self._open_block(match, before)
        else:
            out.append(Dropped(""))
            self._last = ">"

    def _ends_element(self, role: str, tag: re.Match[str]) -> bool:
        """Whether this end tag belongs to an element of XML that is an answer, or to a tag that was said: half of a pair is never heard."""
        name = role.removesuffix("_end") if role != "call_end" else key_of(tag)
        is_open = self._elements.get(name, 0) > 0
        if is_open:
            self._elements[name] -= 1
        return is_open

    def _tag(self, match: re.Match[str], out: list[Segment]) -> None:
        """A think tag in speech."""
        role = match.lastgroup
        if role in _OPENERS:
            self._open_thought(family_of(match), out)
        elif role == "close" or (role == "final" and self._said and not self._final_seen):
            self._retract(out)
        self._final_seen = self._final_seen or role == "final"
        self._last = ">"

    def _open_thought(self, family: str, out: list[Segment]) -> None:
        out.append(ThoughtStart())
        self._open.has_words = family == HARMONY  # no template leaves its header
        self._open.open(family)
        self._fences_of_thought = Fences()
        self._state = Segmenter._in_thought
        self._plain_json = 0
        self._begin_line()

    def _retract(self, out: list[Segment]) -> None:
        out.append(Retract())
        self._strip = True

    def _say(self, text: str, out: list[Segment]) -> None:
        if text:
            self._last = text[-1]
        if text and self._rules is not None:  # fences and lines are where the model wrote them
            self._fences.feed(text)
            if "<" in text:
                for name in _ELEMENT.findall(text.lower()):
                    self._elements[name] = self._elements.get(name, 0) + 1
            self._line_is_blank = self._begins_line(text, len(text))
        if self._strip and text:
            text = text.lstrip("\r\n")
            self._strip = not text
        if self._swallow and text:
            text = text.lstrip(_BEHIND_CALL)
            self._swallow = not text
        if text:
            self._said = True
            out.append(Text(self._choice, text))

    # ---------------------------------------------------------------------------------- thoughts

    def _in_thought(self, text: str, out: list[Segment]) -> str:
        match, cut = self._tags.scan(text, self._last)
        if self._thought_call is None and not (self._looks_for_json and ("{" in text or "(" in text)):
            self._ponder(text[:cut], out)
        elif (rest := self._muse(text, cut, match, out)) is not None:
            return rest
        if match is None:
            self._held = text[cut:]
            return ""
        role = match.lastgroup
        self._last = ">"
        if role in _CLOSERS and self._close_tag(match, out):
            return text[match.end() :]
        if self._suspect is not None:
            self._suspect.append(match[0])
            if role in ("close", "final"):
                # Of another family: it ends nothing, but says that the call before it was thought.
                self._end_suspect(out)
        if role in CALL_OPENERS or role in CALL_ENDERS:
            if role in CALL_OPENERS and role != "parameter":
                self._thought_call = ThoughtCall(role or "")
            if self._suspect is None and (role in CALL_ENDERS or self._fences_of_thought.inside):
                self._ponder(match[0], out)
            elif self._suspect is None:
                self._suspect = [match[0]]
        elif role in _OPENERS or role in _ELEMENTS:
            self._open.follow(role, family_of(match))
            if role in _ELEMENTS and self._suspect is None:
                self._ponder(match[0], out)
        return text[match.end() :]

    def _close_tag(self, tag: re.Match[str], out: list[Segment]) -> bool:
        """A closing tag in a thought; returns whether it ended one. In the engine's own field it ends nothing but what it belongs to."""
        is_final, family = tag.lastgroup == "final", family_of(tag)
        of_field = self._field and not self._open
        if of_field and tag.lastgroup in ("answer_end", "element_end"):
            return False
        if not of_field and not self._open.follow(tag.lastgroup, family):
            return False
        is_first, self._final_seen = is_final and not self._final_seen, self._final_seen or is_final
        if of_field or (self._field and is_final):
            self._suspended = None
            self._end_suspect(out)
            out.append(Retract(field=True))
        elif self._open:
            self._end_suspect(out)
        elif not self._field:
            self._end_thought(out)
            if is_first and self._said:  # whatever was said before the header of the answer is no answer
                self._retract(out)
        return True

    def _muse(self, text: str, cut: int, tag: re.Match[str] | None, out: list[Segment]) -> str | None:
        """In a call in a thought. What is left to read, unless the tag behind `cut` does what it does in any thought."""
        before = self._last
        if self._doubt is None:
            self._ponder(text[:cut], out)
        else:
            self._doubt.text.append(text[:cut])
            self._last = text[cut - 1] if cut else self._last
        at = 0
        while at < cut:
            if self._thought_call is None:
                at = begin_of_call(text, at, cut, before) if self._looks_for_json else cut
                if at == cut:
                    break
                self._thought_call = ThoughtCall("")
            at = self._thought_call.feed(text, at, cut)
            if self._is_given_back(out):
                return self._give_back(text[cut:], out)
        if tag is None or self._thought_call is None:
            return None
        is_argument = self._thought_call.tag(tag.lastgroup or "", tag[0].endswith("="))
        if self._is_given_back(out):
            return self._give_back(text[cut:], out)
        if not is_argument:
            return None
        if self._doubt is not None:
            self._doubt.text.append(tag[0])
        elif tag.lastgroup in CALL_OPENERS or tag.lastgroup in CALL_ENDERS:
            self._ponder(tag[0], out)
        else:
            self._begin_doubt("tag").text.append(tag[0])
        self._last = ">"
        return text[tag.end() :]

    def _begin_doubt(self, cause: Literal["tag", "token", "field"]) -> _Doubt:
        assert self._thought_call is not None
        self._thought_call.went_on = False
        self._doubt = _Doubt(cause, self._last, self._held, [])
        return self._doubt

    def _is_given_back(self, out: list[Segment]) -> bool:
        """Whether the call in the thought has broken off behind the tag that is in doubt, which ended the thought then."""
        assert self._thought_call is not None
        if self._doubt is not None and self._thought_call.went_on:
            self._stay_in_thought(out)
        is_over = self._thought_call.over
        if is_over and self._doubt is None:
            self._thought_call = None
        return is_over and self._doubt is not None

    def _stay_in_thought(self, out: list[Segment]) -> None:
        """What was in doubt was a part of the argument."""
        assert self._doubt is not None
        text, self._doubt = "".join(self._doubt.text), None
        last = self._last
        self._ponder(text, out)
        self._last = last

    def _give_back(self, rest: str, out: list[Segment]) -> str:
        """What was in doubt ended the thought, or does what it does in any. All behind it is left to read."""
        assert self._doubt is not None
        doubt, self._doubt, self._thought_call = self._doubt, None, None
        text, self._last = "".join(doubt.text) + rest, doubt.before
        if doubt.cause == "tag":
            return text
        text = text[len(doubt.held) :]
        if doubt.cause == "token":
            self._ponder(doubt.held, out)
            self._end_by_engine(out)
            return text
        self._field, self._held = True, doubt.held
        self._open.clear()
        return self._cross(False, text, out)

    def _end_doubt(self, out: list[Segment]) -> None:
        """The reply ends, or the engine does something else: inside an argument the tag has ended the thought."""
        while self._doubt is not None:
            if self._thought_call is not None and self._thought_call.inside:
                self._read(self._give_back(self._take_held(), out), out)
            else:
                self._stay_in_thought(out)

    def _ponder(self, text: str, out: list[Segment]) -> None:
        if not text:
            return
        self._last = text[-1]
        if self._suspect is not None:
            self._suspect.append(text)
        else:
            self._open.has_words = self._open.has_words or not text.isspace()
            if self._rules is not None:  # a call in a fence is an example, here as in speech
                self._fences_of_thought.feed(text)
            out.append(Thought(self._choice, text, self._kind))

    @property
    def _kind(self) -> str:
        return "field" if self._field and not self._open else "tag"

    def _end_suspect(self, out: list[Segment]) -> None:
        """What looked like a call in the thought was only a thought."""
        self._thought_call = None
        if self._suspect is not None:
            out.append(Thought(self._choice, "".join(self._suspect), self._kind))
            self._suspect = None

    def _end_thought(self, out: list[Segment]) -> None:
        self._end_suspect(out)
        self._open.clear()
        self._state, self._strip = Segmenter._in_speech, True
        if self._parted is not None:
            self._parted = None
        out.append(ThoughtEnd())

    def _end_unclosed_thought(self, reason: str, out: list[Segment]) -> None:
        """The reply ended inside a thought: calls in it survive, and nothing of it is spoken."""
        suspect = self._suspect
        if suspect is not None and self._rules is not None and self._rules.tools and reason:
            self._suspect = None
            rules = replace(self._rules, bare=False, json=False)
            inner = Segmenter(self._choice, tag_set((), ALL_CALL_FAMILIES), rules)
            found = [*inner.feed(Text(self._choice, "".join(suspect))), *inner.close(reason)]
            out.extend(self._in_mind(segment) for segment in found)
        self._end_suspect(out)
        self._open.clear()
        self._field, self._state = False, Segmenter._in_speech

    def _in_mind(self, segment: Segment) -> Segment:
        """A segment of what looked like a call, in a thought that never ends: the call counts, the rest is thought."""
        if type(segment) is Dropped:
            return replace(segment, thought=True)
        return Thought(self._choice, segment.text, "tag") if type(segment) is Text else segment

    # ------------------------------------------------------------------------------------- calls

    def _native(self, event: Event, out: list[Segment]) -> None:
        """What is no text goes on as it is, but for the engine's own calls of tools that nobody declared."""
        rules = self._rules
        if rules is None or not rules.strips_unasked or type(event) not in (CallStart, CallArguments):
            self._unasked = None
        elif type(event) is CallStart:
            repeats, is_asked = event == self._unasked, event.name in rules.tools
            self._unasked = None if is_asked else event
            if not (is_asked or repeats):
                out.append(Dropped("unasked", raw=False))
        if self._unasked is None:
            out.append(event)

    def _open_block(self, match: re.Match[str], before: str, said: str | None = None) -> None:
        assert self._rules is not None
        inside = self._fences.inside
        of_line = self._line_is_blank
        self._block = CallBlock(
            self._choice, self._rules, self._tag_set.think, match, before, inside, self._index, of_line, said
        )
        self._state = Segmenter._in_block
        self._plain_json = 0

    def _in_block(self, text: str, out: list[Segment]) -> str:
        assert self._block is not None
        rest = self._block.feed(text, out)
        if self._block.done:
            self._leave_block(self._block, out)
        return rest

    def _close_block(self, reason: str, out: list[Segment]) -> None:
        """The block is over, and every one, and every doubt, that reading the rest of it again begins."""
        while (block := self._block) is not None:
            rest = block.close(reason, out)
            self._leave_block(block, out)
            self._read(rest, out)
            self._end_doubt(out)

    def _leave_block(self, block: Block | InterruptedCall, out: list[Segment]) -> None:
        if isinstance(block, InterruptedCall):
            block = block.block
        self._block, self._state = None, Segmenter._in_speech
        self._index = block.index
        if block.plain:
            self._plain_json = block.plain
            self._other = self._other or (Brackets() if block.is_json else None)
            return
        self._last = ""
        if block.literal:
            self._say(block.literal, out)
            if type(block) is CallBlock and block.is_wrapper:
                self._elements[block.key] = self._elements.get(block.key, 0) + 1
        else:
            self._strip, self._swallow = False, True
            if type(block) is CallBlock:
                self._elements.pop(block.key, None)
            self._begin_line()


def _join_texts(segments: list[Segment]) -> None:
    """Make one segment of texts that follow each other, in place: a long delta goes out as one."""
    joined: list[Segment] = []
    for is_text, group in groupby(segments, lambda segment: type(segment) is Text):
        if is_text:
            texts = [text for text in group if isinstance(text, Text)]
            joined.append(Text(texts[0].choice, "".join(text.text for text in texts)))
        else:
            joined.extend(group)
    segments[:] = joined
