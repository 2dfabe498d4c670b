"""The reply parser: a transducer over the characters of one reply. Pure.

Its output depends on the concatenated text alone, wherever the engine cut it (tests/app/stream/test_every_cut.py). The state is
the region in which the text stands (speech, a thought, a call, …), what is known of its line and of code around it, and the
suffix that is not decided yet. Inside a region nothing is speech; outside, everything is. Markers are data
(`gates.contracts.markers`); a marker that is quoted, in code, or mentioned inside its line opens nothing. Every region ends: a value
at its last bracket, a thought at its first closing tag; what is open at the end of the reply is read once more.

The engine's two fields are one text with a seam (`SEAMS`) between them, which markers and calls may span.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from string import ascii_letters

from msgspec import Struct

from app.stream.call_reader import Call, cut_call, declared_calls, python_calls, read_calls
from app.stream.holdback import CUT, HoldBack
from app.stream.joiner import RUN
from app.stream.json_value import NotJSON, ValueScanner
from app.stream.schema import Tools
from gates.contracts.markers import HEADS, MAX_TAG, SEAMS, START, Marker, find, is_half, match, may_become
from gates.reply.events import CallArguments, CallStart, Event, Finish, Text, Thought

REASONING, CONTENT = SEAMS[0], SEAMS[1]
"""The fields of an engine's reply; each is named by the seam that begins it."""
HOLD = 512
"""Characters of a line that are looked at to see whether a marker in it is quoted or mentioned."""
MAX_RUN = 64
"""Backticks or tildes in a row that mean something."""
MAX_HEADER = 300
"""Characters of a message's header."""

_NO_END = RUN + "\xa0"
"""Characters at the end of a text that the parser holds: they belong to a removed piece, or decide how a marker after them is read."""
_STOP = re.compile(f"[{re.escape(START)}>`~\\n{{{SEAMS}]")
_BODY_STOP = re.compile(f"[{re.escape(START)}\\n]")
_SEAM = re.compile(f"([{SEAMS}])")
_NO_SEAMS = {ord(char): None for char in SEAMS}
_NO_INFO = re.compile(f"[`<&\uff1c\u25c1{SEAMS}]")
_SPACE = re.compile(rf"[\s{SEAMS}]*")
_BEHIND_VALUE = re.compile(r"[ \t;,]*")
_AFTER_CALL = re.compile(r"[\s}\],;]*")
_WITHIN = re.compile(r"[\w,;)\]\"'”’][ \t\xa0]{1,3}\Z")
"""What precedes a marker that is mentioned inside a sentence."""
_CONNECTIVE = re.compile(
    r"[\s.,/\u2026\u2014\u2013-]*(?:and|or|to|und|oder|et|ou|y|o|e|a|do|i)?[\s.,/\u2026\u2014\u2013-]*"
)
"""What stands between two tags that are named as a pair."""
_STRUCTURE = re.compile(r"\{|\w\(\w*[=)]|\w=\S|<(?:arg|param|function)")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "„": "“", "«": "»", "「": "」", "(": ")", "[": "]"}
_NAME_FIRST = ("TOOL_CALLS", "TOOL_CALL")
"""Markers behind which a name and its JSON stand without another marker."""
_SPLIT = f"[{SEAMS}]?"  # between any two characters
_ARGS, _CALL_ID = (_SPLIT.join(map(re.escape, tag)) for tag in ("[ARGS]", "[CALL_ID]"))
_NAME = rf"[\w.:/{SEAMS}-]{{1,128}}"
_PREFIX = re.compile(rf"{_NAME}(?:{_CALL_ID}[\w{SEAMS}-]{{0,64}})?(?:{_ARGS})?[\s{SEAMS}]{{0,16}}(?=[{{<(])")
_PREFIX_BEGUN = re.compile(
    rf"{_NAME}(?:\[[A-Z_{SEAMS}]{{0,9}}\]?[\w{SEAMS}-]{{0,64}}){{0,2}}[\s{SEAMS}]{{0,16}}"
)
_RUN = re.compile(rf"(`{{1,{MAX_RUN}}}|~{{1,{MAX_RUN}}})[ \t]{{0,{HOLD}}}")
_PYTHON = re.compile(r"\[\s*[A-Za-z_][\w.]*\(")
_PYTHON_BEGUN = re.compile(r"\[\s*(?:[A-Za-z_][\w.]{0,128})?")
_FIRST_KEY = re.compile(r'(?:\[\s*)?\{\s*"(?:name|arguments|type|id|thought|(?:\w{4,8}_)?calls?|function)"')
_FIRST_KEY_BEGUN = re.compile(r'\[\s*|(?:\[\s*)?\{\s*(?:"[a-z_]{0,14})?')
"""What a call without a marker begins with, where the request declared no tools."""
_HEADS = {head[0]: [one for one in HEADS.items() if one[0][0] == head[0]] for head in HEADS}
_HEAD_LETTERS = "> \t" + "".join(_HEADS)
_NAME_LINE = re.compile(
    r"(>>>)?([\w.-]{1,128})[ \t]{0,16}(?:\n(?:<[|conte>]{0,10})?(?:\{\s{0,64}(?:[\"}])?)?)?|>{1,3}\Z"
)
"""A tool's name alone on the line above its arguments, as GLM-4 and functionary write it."""
_THINKERS = (
    "think", "thought", "reason", "reasoning", "analysis", "thinking", "commentary", "to=self", "assistant/think"
)  # fmt: skip
_OTHERS = ("user", "system", "tool", "developer", "observation", "human")
_ROLE = re.compile(
    rf"\s{{0,2}}((?:assistant|{'|'.join(_OTHERS)})(?=[{SEAMS}])|[\w/-]{{1,32}}(?:[{SEAMS}][\w-]{{1,32}})?(?![{SEAMS}]))"
    r"[ \t]*(?=[^\w/-])\n?"
)
_HEADER = re.compile(
    rf"([\s\S]{{0,{MAX_HEADER}}}?)<{_SPLIT}[|\uff5c](?:"
    + "|".join(_SPLIT.join(("", *one, "")) for one in ("message", "sep", "end_header_id", "header_end"))
    + rf")[|\uff5c]{_SPLIT}>"
)
"""The text between a header's token and its message, and the token that ends it."""
_RECIPIENT = re.compile(r"to=(?:functions\.)?(?!(?:assistant|user|self|commentary)\b)([\w.-]{1,128})")
_RESUMES = ("<|start|>", "<|begin|>", "<|message_model|>")
_RESUMED = ("end", "end_message", "eom")  # ends of a message that another may follow
OWN_JSON, OWN_PYTHON = frozenset({"llama"}), frozenset({"pythonic", "llama"})
"""Formats whose calls are JSON or Python's lists without a marker."""


class Rules(Struct, frozen=True):
    """What one request says about its reply.

    tools: what it declared. strips_unasked: a call of any other tool is dropped; else it is handed on as an invalid one.
    finds_calls: calls are looked for at all. json: JSON was asked for, and the first value is the answer, to the letter.
    format: how the engine's model writes its calls (`deploy.engine.formats`); "" if that is not known.
    """

    tools: Tools = Tools()
    strips_unasked: bool = True
    finds_calls: bool = True
    json: bool = False
    format: str = ""


class _Undecided(Exception):
    """What stands here depends on characters that have not come yet."""


class _Region:
    """A call, or a tool's answer that the model made up. mode: what it is waiting for (start, json, until, after)."""

    def __init__(self, marker: Marker, inside: str) -> None:
        self.marker = marker
        self.is_result = marker.kind == "result"
        self.inside = inside  # the field or thought that it began in: "" for speech
        self.body: list[str] = []
        self.mode = "start"
        self.is_json = False
        self.is_structured = False
        self.scanner = ValueScanner()

    def next_value(self, mode: str) -> None:
        """A body begins."""
        self.body, self.mode, self.scanner = [], mode, ValueScanner()


class _Candidate:
    """JSON without a marker that may be a call. text: all that is held. mode: lead, value, behind, or closed (as its fence is)."""

    def __init__(self, text: str, fence: str, is_python: bool = False) -> None:
        self.text = [text] if text else []
        self.fence = fence
        self.is_python = is_python
        self.mode = "lead" if fence else "value"
        self.scanner = ValueScanner(loose=is_python)
        self.value: list[str] = []
        self.calls: list[Call] | None = None  # empty: it began as one, and cannot be read


class Parser:
    """`feed` events and get back what may go out, `close` where the reply broke off. `hold`: the stage that speech goes through."""

    def __init__(self, rules: Rules, hold: HoldBack) -> None:
        self.hold = hold
        self._rules = rules
        self._letters = _HEAD_LETTERS + (ascii_letters if rules.tools else "")  # words that mark begin so
        self._buf = ""  # not decided yet
        self._at = 0  # in `_buf`
        self._final = False  # nothing follows `_buf`
        self._state = "text"
        self._arriving = self._field = CONTENT  # the field of what comes in, and of what is read
        self._line = True  # nothing but blanks on this line so far
        self._before = ""  # the last characters
        self._span = 0  # backticks of the code span that is open
        self._fence = ""  # the run that opened the code fence
        self._kind = ""  # of the thought: tag, or message for one that a header began
        self._rest: list[str] | None = None  # behind a closing tag in code, inside a thought
        self._late: list[Call] = []  # calls in a thought that may never end
        self._not_before = 0  # up to here in `_buf` no JSON is a candidate
        self._json_was_read = False
        self._is_wrapped = self._resumes = False
        self._is_opened = False  # the reasoning field began a thought and did not end it
        self._region: _Region | None = None
        self._candidate: _Candidate | None = None
        self._scanner = ValueScanner()
        self._drops_native = self._is_cut = False

    # The stage.

    def feed(self, event: Event) -> list[Event]:
        """Push one event through."""
        if type(event) is Text:
            self._take(event.text, CONTENT)
        elif type(event) is Thought:
            self._take(event.text, REASONING)
        elif type(event) is CallStart or type(event) is CallArguments:
            self._run(True)  # what is held before the call is whole
            self._native(event)
        else:
            assert type(event) is Finish
            self._end(event.reason)
            self.hold.finish(event)
        return self.hold.take()

    def close(self, reason: str = "") -> list[Event]:
        """The reply broke off, or is given up (reason "length")."""
        self._end(reason)
        self.hold.close(reason)
        return self.hold.take()

    @property
    def is_plain(self) -> bool:
        """Whether `passes` may be asked: it leaves this as it is, and `feed` may not."""
        is_text = self._state == "text" and self._arriving == CONTENT
        return is_text and not (self._buf or self._line or self._span) and self.hold.is_plain

    def passes(self, text: str) -> bool:
        """The short way: whether this text goes out as it is; if so, it is taken."""
        last = text[-1:]
        if last in _NO_END or _STOP.search(text) is not None:
            return False
        self._before = self.hold.last = self.hold.joiner.last = last
        return True

    def end_thought(self) -> list[Event]:
        """The engine ended its thought by a token that is not in the text."""
        was_thought = self._state == "thought"
        if was_thought or self.hold.may_be_thinking:
            self._run(True)
            self._end_thought() if was_thought else self.hold.orphan()
        return self.hold.take()

    @property
    def is_thinking(self) -> bool:
        """Whether the text stands in a thought."""
        return self._state == "thought" or (self._state == "text" and self._in_reasoning)

    @property
    def has_call(self) -> bool:
        """Whether something like a call has begun that has not gone out."""
        return self._region is not None or self._candidate is not None or bool(self._late)

    def _take(self, text: str, field: str) -> None:
        if REASONING in text or CONTENT in text:  # noncharacters: no text has them
            text = text.replace(REASONING, "\ufffd").replace(CONTENT, "\ufffd")
        if field != self._arriving:
            self._arriving = field
            text = field + text
        self._buf += text
        self._run(False)

    def _run(self, final: bool) -> None:
        """Take what is decided of the buffer; if this is the end, all of it."""
        self._final = final
        with suppress(_Undecided):
            while self._at < len(self._buf) or (final and self._end_region()):
                if self._at < len(self._buf):
                    _STEPS[self._state](self)
        self._final = False
        self._not_before = max(self._not_before - self._at, 0)
        self._buf, self._at = self._buf[self._at :], 0

    def _wait_if(self, condition: object) -> None:
        if condition and not self._final:
            raise _Undecided

    def _native(self, event: CallStart | CallArguments) -> None:
        """A call that the engine made: one that no request asked for is dropped."""
        if type(event) is CallStart:
            self._drops_native = self._rules.strips_unasked and event.name not in self._rules.tools
            if self._drops_native:
                self.hold.drop("unasked", is_raw=False)
        if not self._drops_native:
            self.hold.native(event)

    def _end(self, reason: str) -> None:
        self._is_cut = reason == "length"
        self._run(True)
        if self._state == "thought" and self._rest is not None and reason not in CUT:
            # No closing tag came but one in code: it was the end after all.
            rest, self._rest = "".join(self._rest), None
            self._end_thought()
            self._buf = rest
            self._run(True)
        if self._late and not self.hold.is_visible:
            self._emit_calls(self._late)
        self._late = []
        if answer := self.hold.answer(reason):
            self._state, self._field, self._buf, self._json_was_read = "text", CONTENT, answer, False
            self._line, self._before, self._span, self._fence = True, "", 0, ""
            self._end(reason)

    def _end_region(self) -> bool:
        """At the end of the reply: whether something was open, which may give text back."""
        if self._region is not None:
            self._unfinished_call(self._region)
        elif self._candidate is not None:
            self._unfinished_candidate(self._candidate)
        else:
            return False
        return True

    # Text, and the constructs of it.

    @property
    def _in_reasoning(self) -> bool:
        return self._field == REASONING

    def _say(self, text: str) -> None:
        """Text to the letter, in whatever region it stands."""
        if not text:
            return
        at = text.rfind("\n")
        if at >= 0:
            self._line, self._span = True, 0
        if (tail := text[at + 1 :]) and not tail.isspace():
            self._line = False
        self._before = (self._before + text)[-8:]
        if self._state == "thought" or self._field == REASONING:
            self._think(text)
        else:
            if not text.isspace():  # an answer follows the thought, so that no call in it was meant
                self._late = []
            self.hold.text(text)

    def _think(self, text: str) -> None:
        if self._rest is not None:
            self._rest.append(text)
        self.hold.thought(text, "field" if self._in_reasoning else "tag")

    def _lex(self) -> None:
        """Text and thoughts: literal up to the next thing of interest, and that by its kind."""
        if self._line and self._buf[self._at] in self._letters and (end := self._head(self._at)):
            self._at = end
            return
        found = _STOP.search(self._buf, self._at)
        stop = len(self._buf) if found is None else found.start()
        self._say(self._buf[self._at : stop])
        self._at = stop
        if found is not None:
            self._at = self._at_stop(found[0], stop)

    def _head(self, at: int) -> int:
        """Where the words end that stand at the beginning of this line and mark what follows; 0: there are none."""
        buf, is_thought = self._buf, self._state == "thought"
        if self._field == REASONING or self._fence or (is_thought and self._kind != "prose"):
            return 0
        is_call = self._rules.finds_calls and not (self._rules.json or is_thought)
        lead = buf[at : at + 16]
        start = at + len(lead) - len(lead.lstrip(" \t"))
        self._wait_if(start == len(buf))
        for head, kind in _HEADS.get(buf[start : start + 1], ()):
            is_due = is_thought if kind == "answer" else self.hold.is_blank
            if kind in ("call", "speech", "opening"):
                is_due = is_call and (kind != "opening" or (self.hold.is_blank and bool(self._rules.tools)))
            rest = buf[start : start + len(head)]
            if is_due and head.startswith(rest):
                self._wait_if(rest != head)
                if rest == head:
                    end = start + len(head.rstrip("[{").removesuffix("```json\n"))
                    return self._begin_head(kind, at, end)
        # A tool's name above its arguments. At the beginning of a reply one with `_` is a name even if nothing declares it.
        found, tools = _NAME_LINE.match(buf, start), self._rules.tools
        is_whole = found is not None and found[0][-1] in '"}'
        if found is None or not (is_call and (is_whole or found.end() == len(buf))):
            return 0
        name = found[2] or ""
        is_known = name in tools if is_whole else f"\n{name}" in "\n".join(("", *tools))
        may_be_new = tools and name[:1].islower() and name == name.lower() and ("_" in name or not is_whole)
        is_name = not name or found[1] or is_known or (may_be_new and self.hold.is_blank)
        if is_name and not (is_whole or self._final):
            raise _Undecided
        opening = Marker("call", False, "head", name)
        return self._begin_call(opening, at, buf.index("{", start)) if is_name and is_whole else 0

    def _begin_head(self, kind: str, at: int, end: int) -> int:
        if kind == "call":
            return self._begin_call(Marker("call", False, "head"), at, end)
        if kind == "header":
            is_header = _HEADER.match(self._buf, at) is not None
            self._wait_if(not is_header and len(self._buf) - at < MAX_HEADER)
            return self._header("channel", at, at) if is_header else 0
        if kind == "answer":
            self._end_thought()
            return end
        if kind in ("speech", "opening"):
            return self._gone(end)
        self._rest = [self._buf[at:end]]  # if no answer follows, it was none
        return self._begin_thought(kind, end)

    def _at_stop(self, char: str, at: int) -> int:
        """Where what stands here ends."""
        if char in ">\n":
            is_head = char == ">" and ">>>".startswith(self._buf[at : at + 3])
            return (is_head and self._head(at)) or self._literal(at, at + 1)
        if char in SEAMS:
            return self._seam(char, at)
        if char in "`~":
            return self._ticks(char, at)
        if char == "{":
            return self._value(char, at)
        found = self._marker(at)
        if found is None:
            return self._no_marker(char, at)
        self._cross_seams(at, found[1])
        return self._decide(*found, at)

    def _marker(self, at: int) -> tuple[Marker, int] | None:
        """The marker that stands here, and its end."""
        found = match(self._buf, at)
        if found is None or (self._buf[at] == "[" and found[1] == len(self._buf)):
            self._wait_if(len(self._buf) - at <= MAX_TAG and may_become(self._buf, at))
        return found

    def _no_marker(self, char: str, at: int) -> int:
        buf = self._buf
        if self._final and not (self._fence or self._span) and may_become(buf, at) and is_half(buf[at:]):
            self.hold.removed()
            return len(buf)
        return self._value(char, at) if char == "[" else self._literal(at, at + 1)

    def _literal(self, at: int, end: int) -> int:
        self._say(self._buf[at:end].translate(_NO_SEAMS))
        self._cross_seams(at, end)
        return end

    def _gone(self, end: int) -> int:
        """What ends here was taken out; a line begins behind it."""
        if not self._in_reasoning:
            self.hold.removed()
        self._line, self._before = True, ""
        return end

    def _seam(self, field: str, at: int) -> int:
        if field == REASONING and self._state == "thought":
            self._end_thought()  # a thought in the text ends where the reasoning field begins
        if field == CONTENT and self._state == "text":
            self.hold.reasoning_ends()
        self._field = field
        if self._state == "text":
            self._line, self._before, self._span, self._fence = True, "", 0, ""
        return at + 1

    def _cross_seams(self, at: int, end: int) -> None:
        """One field begins what stands here, another ends it."""
        if seams := _SEAM.findall(self._buf, at, end):
            self._seam(seams[-1], at)

    def _ticks(self, char: str, at: int) -> int:
        """A run of backticks or tildes: a code span or a fence begins or ends, or it is text."""
        buf, size = self._buf, len(self._buf)
        run = _RUN.match(buf, at)
        assert run is not None
        end, number = run.end(1), len(run[1])
        if number == MAX_RUN:
            return self._literal(at, end)
        self._wait_if(end == size)
        if self._fence:
            if self._line and char == self._fence[0] and number >= len(self._fence):
                self._wait_if(run.end() == size and size - at < HOLD)
                if run.end() - at < HOLD and buf[run.end() : run.end() + 1] in ("", "\n"):
                    self._fence = ""
            return self._literal(at, end)
        if self._line and number >= 3:
            newline = buf.find("\n", end, end + MAX_TAG)
            self._wait_if(newline < 0 and size - end < MAX_TAG)
            if newline >= 0 and not _NO_INFO.search(buf, end, newline):
                if self._may_be_call(at):
                    self._candidate = _Candidate(buf[at : newline + 1], run[1])
                    self._state = "candidate"
                    return newline + 1
                self._fence = run[1]
                return self._literal(at, newline + 1)
        if char == "`":
            self._span = number if not self._span else 0 if self._span == number else self._span
        return self._literal(at, end)

    def _may_be_call(self, at: int) -> bool:
        """Whether JSON without a marker that begins here may be a call."""
        rules, buf = self._rules, self._buf
        is_speech = self._state == "text" and not self._in_reasoning
        if not (is_speech and rules.finds_calls) or rules.json or at < self._not_before:
            return False
        if rules.tools or rules.format in OWN_PYTHON:
            return True
        self._wait_if(len(buf) - at < 64 and _FIRST_KEY_BEGUN.fullmatch(buf, at))
        return _FIRST_KEY.match(buf, at) is not None

    def _value(self, char: str, at: int) -> int:
        """A bracket that may begin JSON."""
        buf, is_json_due = self._buf, self._rules.json and not self._json_was_read
        if is_json_due and self._state == "text" and not (self._in_reasoning or self._fence):
            self._json_was_read, self._scanner, self._state = True, ValueScanner(), "json"
            return at
        if not self._line or self._fence or not self._may_be_call(at):
            return self._literal(at, at + 1)
        is_python = False
        if char == "[":
            may_be_python = self._rules.format in OWN_PYTHON
            is_python = may_be_python and _PYTHON.match(buf, at) is not None
            inner = _SPACE.match(buf, at + 1)
            assert inner is not None
            self._wait_if(inner.end() == len(buf) and len(buf) - at < HOLD)
            self._wait_if(may_be_python and not is_python and _PYTHON_BEGUN.fullmatch(buf, at))
            if not is_python and buf[inner.end() : inner.end() + 1] != "{":
                return self._literal(at, at + 1)
        self._candidate, self._state = _Candidate("", "", is_python), "candidate"
        return at

    # Markers.

    def _decide(self, marker: Marker, end: int, at: int) -> int:
        """What a whole marker does where it stands."""
        if self._before[-1:].isalnum() and self._buf[at + 1].isupper() and self._buf[at + 2].islower():
            return self._literal(at, end)  # a generic type: Box<Thought>
        if self._fence:
            return self._as_text(marker, at, end)
        if self._span:
            if self._find_on_line(rf"(?<!`)`{{{self._span}}}(?!`)", end):
                return self._as_text(marker, at, end)
            self._span = 0
        if (quote := _QUOTES.get(self._before[-1:])) is not None:
            self._wait_if(end == len(self._buf))
            if self._buf[end : end + 1] == quote:
                return self._as_text(marker, at, end)
            if not marker.closes and self._state == "text" and quote not in ")]":
                closing = self._find_on_line(rf"[>\uff1e\]\u25b7;)}}]{re.escape(quote)}", end)
                if closing:
                    return self._literal(at, closing)
        return (self._in_thought if self._state == "thought" else self._in_text)(marker, at, end)

    def _rest_of_line(self, at: int) -> tuple[int, bool]:
        """Where the line ends, as far as it is looked at, and whether all of that has come."""
        newline, size = self._buf.find("\n", at, at + HOLD), len(self._buf)
        return (newline, True) if newline >= 0 else (min(size, at + HOLD), size - at >= HOLD)

    def _find_on_line(self, pattern: str, at: int) -> int:
        """Where this ends on the line; 0 if it is not there."""
        stop, is_whole = self._rest_of_line(at)
        found = re.compile(pattern).search(self._buf, at, stop)
        if found is not None and (found.end() < len(self._buf) or self._final):
            return found.end()
        self._wait_if(not is_whole)
        return 0

    def _as_text(self, marker: Marker, at: int, end: int) -> int:
        """A marker in code or in quotes. If no other closing tag comes, this one was the end of the thought."""
        literal = self._literal(at, end)
        if self._state == "thought" and marker.kind == "think" and marker.closes:
            self._rest = []
        return literal

    def _in_thought(self, marker: Marker, at: int, end: int) -> int:
        kind, is_message = marker.kind, self._kind == "message"
        if kind == "think" and marker.closes:
            self._end_thought()
            return end
        if kind == "role" or (kind == "turn" and (not is_message or marker.name == "return")):
            return self._end_reply(end, marker.name in _RESUMED)
        if is_message and kind in ("turn", "header"):
            self._end_thought()
            return end if kind == "turn" else at
        if kind == "call" and not marker.closes:
            return self._open_call(marker, at, end)
        return self._literal(at, end)

    def _in_text(self, marker: Marker, at: int, end: int) -> int:
        kind, opens = marker.kind, not marker.closes
        is_call = kind in ("call", "weak_call")
        if (is_call or kind == "result") and not (self._rules.finds_calls or self._in_reasoning):
            return self._literal(at, end)
        if is_call and opens:
            return self._open_call(marker, at, end)
        if kind in ("part", "weak_call") or (self._in_reasoning and kind != "header"):
            self._is_opened = opens if kind == "think" else self._is_opened
            return self._literal(at, end)
        if kind == "wrapper":
            opens = opens and self._line and self.hold.told_apart
            if not (opens or (marker.closes and self._is_wrapped)):
                return self._literal(at, end)
            self._is_wrapped = opens
            return self._gone(end)
        if marker.empty:  # <think/>
            return self._gone(end)
        begins_thought = kind == "think" and opens
        if self._is_mentioned(end):
            is_pair = begins_thought or (kind == "result" and opens)
            return self._doubt(marker, at, end) if is_pair else self._literal(at, end)
        if begins_thought:
            return self._begin_thought("tag", end)
        if kind == "think":
            self.hold.orphan()
        elif kind == "result" and opens:
            self._begin_call(marker, at, end)
        elif kind == "header":
            return self._header(marker.name, at, end)
        elif kind == "role" or (kind == "turn" and marker.name not in ("call", "/s")):
            if kind == "role" or not self.hold.is_blank:
                return self._end_reply(end, marker.name in _RESUMED)
        elif marker.name == "/s":
            behind = self._buf[end : end + HOLD]
            self._wait_if(not behind.strip() and len(behind) < HOLD)
            if behind.strip() and behind[0] not in "[<":
                return self._literal(at, end)
        return self._gone(end)

    def _is_mentioned(self, end: int) -> bool:
        """Whether a marker is a word of a sentence: blanks before it, and a word or a sign behind it."""
        if self._line or _WITHIN.search(self._before) is None:
            return False
        behind = self._buf[end : end + 2]
        self._wait_if(not behind or (behind[0] in " \t\xa0-" and len(behind) < 2))
        if behind and behind[0] in " \t\xa0":
            return len(behind) == 1 or (behind[1].isalpha() and not behind[1].isupper())
        return behind != "" and (behind[0] in ".,;:!?)…，。" or (behind[0] == "-" and behind[1:].isalpha()))

    def _begin_thought(self, kind: str, end: int) -> int:
        self._state, self._kind = "thought", kind
        self._span, self._fence = 0, ""
        return self._gone(end)

    def _end_thought(self) -> None:
        self._state, self._rest, self._late = "text", None, []
        self._span, self._fence, self._line, self._before = 0, "", True, ""
        self.hold.thought_ends()

    def _doubt(self, marker: Marker, at: int, end: int) -> int:
        """An opening marker inside a sentence: a mention, unless its closing one follows on the line, with more than `and` between."""
        stop, is_whole = self._rest_of_line(end)
        is_call = marker.kind != "think"
        for other, start, behind in find(self._buf, end, stop):
            if other.closes and other.kind == marker.kind:
                if _CONNECTIVE.fullmatch(self._buf, end, start):
                    return self._literal(at, behind)
                return self._begin_call(marker, at, end) if is_call else self._begin_thought("tag", end)
        self._wait_if(not is_whole)
        if is_call and _STRUCTURE.search(self._buf, end, stop):
            return self._begin_call(marker, at, end)
        return self._literal(at, end)

    def _end_reply(self, end: int, resumes: bool = False) -> int:
        """A turn is over: what follows is somebody else's, made up."""
        if self._state == "thought" and (resumes or self._kind == "message"):
            self._end_thought()
        self._state, self._resumes = "ended", resumes
        self.hold.removed()
        return end

    def _ended_step(self) -> None:
        """Only a message's header brings the reply back (gpt-oss ends each of its messages)."""
        at = self._buf.find("<", self._at) if self._resumes else -1
        self._at = len(self._buf) if at < 0 else at
        if self._buf.startswith(_RESUMES, self._at):
            if self._is_opened:  # the thought that the reasoning field began ended here
                self.hold.orphan()
            self._state, self._is_opened = "text", False
            self._line, self._before, self._span, self._fence = True, "", 0, ""
        elif begun := self._buf[self._at : self._at + MAX_TAG]:
            self._wait_if(any(one.startswith(begun) for one in _RESUMES))
            self._at += 1

    def _header(self, name: str, at: int, end: int) -> int:
        """The role or channel behind a header's token decides what the message is."""
        if name in ("message", "end_header_id", "header_end"):
            return self._gone(end)
        pattern = _ROLE if name.endswith(("im_start", "turn", "role", "begin")) else _HEADER
        head = pattern.match(self._buf, end)
        if head is None:
            size = len(self._buf)
            self._wait_if(size - end < (36 if pattern is _ROLE else MAX_HEADER))
            return self._message("", end, size if self._final and pattern is _HEADER else end)
        at, end = end, head.end()
        said = head[1].translate(_NO_SEAMS).strip()
        if name in ("open", "close"):  # Kimi K3's `<|open|>NAME …<|sep|>` and `<|close|>NAME<|sep|>`
            element = said.partition(" ")[0] if name == "open" else ""
            if element in ("response", "message", "", "think"):
                return self._message(element, at, end)
            return self._begin_call(Marker("result", False, "open"), at, end)
        if tool := _RECIPIENT.search(said):
            return self._begin_call(Marker("call", False, "message", tool[1]), at, end)
        words = re.split(r"[\s|<>]+", f"{name if name != 'start' else ''} {said.lower()}")
        known = ("final", *_THINKERS, *_OTHERS)
        role = (
            said.lower() if pattern is _ROLE else next((word for word in words if word in known), "assistant")
        )
        return self._message(role, at, end)

    def _message(self, role: str, at: int, end: int) -> int:
        self._cross_seams(at, end)
        if role in _THINKERS:
            return self._begin_thought("message", end)
        if role in _OTHERS or role.startswith("functions."):
            return self._end_reply(end, resumes=True)
        return self._gone(end)

    def _json_step(self) -> None:
        """The JSON that was asked for goes out to the letter."""
        at = end = self._at
        try:
            end = self._scanner.feed(self._buf, at)
        except NotJSON:
            self._scanner.done = True
        self._cross_seams(at, end)
        self._state = "text"
        self._say(self._buf[at:end].translate(_NO_SEAMS))
        self._at = end
        self._state = "text" if self._scanner.done else "json"

    # Calls behind a marker.

    def _open_call(self, marker: Marker, at: int, end: int) -> int:
        """An opening marker: what stands behind it tells a call from a mention, and from an element of somebody's XML."""
        buf = self._buf
        space = _SPACE.match(buf, end, end + HOLD)
        assert space is not None
        body = space.end()
        self._wait_if(body == len(buf) and body - end < HOLD)
        char = buf[body : body + 1] or " "
        is_inside = self._state == "thought" or self._in_reasoning
        is_structured = char in "{[<" or bool(marker.word)
        if is_inside and marker.kind == "call" and not is_structured:
            is_structured = self._has_prefix(body) > 0
        is_alone = char not in "{[<" and "\n\n" in buf[end:body]
        is_named = marker.name == "named" and char != "<"
        is_element = is_named or (marker.kind == "weak_call" and char not in "{[")
        if is_alone or is_element or (is_inside and not is_structured):
            return self._literal(at, end)
        if char not in "{[<" and not is_inside:
            is_mentioned = self._is_mentioned(end)
            if is_mentioned or (body > end and "\n" not in buf[end:body] and char.islower()):
                return self._doubt(marker, at, end)
        return self._begin_call(marker, at, end)

    def _has_prefix(self, at: int) -> int:
        """Where the name ends that stands before a call's JSON; 0 if none does."""
        prefix = _PREFIX.match(self._buf, at)
        if prefix is None:
            self._wait_if(len(self._buf) - at < MAX_HEADER and _PREFIX_BEGUN.fullmatch(self._buf, at))
            return 0
        return prefix.end()

    def _begin_call(self, marker: Marker, at: int, end: int) -> int:
        inside = self._state if self._state == "thought" else REASONING if self._in_reasoning else ""
        self._region, self._state, self._at = _Region(marker, inside), "call", at
        self._keep(end)
        self._region.body = []
        return end

    def _keep(self, end: int) -> None:
        """Take the buffer up to `end` into the call's body."""
        region, text = self._region, self._buf[self._at : end]
        assert region is not None
        self._at = end
        for part in _SEAM.split(text) if text else ():
            if part and part in SEAMS:
                self._field = part
            elif part and self._is_thought(region):
                self._think(part)
            region.body.append(part)

    def _call_step(self) -> None:
        region = self._region
        assert region is not None
        _BODY_STEPS[region.mode](self, region)

    def _call_start(self, region: _Region) -> None:
        buf = self._buf
        space = _SPACE.match(buf, self._at)
        assert space is not None
        self._keep(space.end())
        if self._at == len(buf):
            return
        if region.marker.name in _NAME_FIRST and buf[self._at] not in "{[":
            self._keep(max(self._has_prefix(self._at), self._at))
        region.is_json = buf[self._at] in "{["
        region.is_structured = buf[self._at] in "{[<" or bool(region.marker.word) or region.is_result
        region.mode = "json" if region.is_json else "until"

    def _call_json(self, region: _Region) -> None:
        try:
            self._keep(region.scanner.feed(self._buf, self._at))
        except NotJSON as error:
            self._keep(error.at)
            region.mode, region.is_json = "until", False
        if region.scanner.done:
            self._read_body(region)

    def _call_until(self, region: _Region) -> None:
        """A body that is no JSON: to the marker that closes it, or to what cannot stand in it."""
        buf = self._buf
        found = _BODY_STOP.search(buf, self._at)
        self._keep(len(buf) if found is None else found.start())
        if found is None:
            return
        at = self._at
        if buf[at] == "\n":
            self._wait_if(not region.is_structured and at + 1 == len(buf))
            if region.is_structured or buf[at + 1 : at + 2] not in ("", "\n"):
                self._keep(at + 1)
            else:
                self._read_body(region)
            return
        there = self._marker(at)
        if there is None:
            return self._keep(at + 1)
        marker, end = there
        closes = marker.closes and (
            (marker.kind == "result" or marker.name == "close")
            if region.is_result
            else (marker.kind in ("call", "weak_call") or marker.name in ("function", "invoke"))
        )
        begins_another = marker.name == region.marker.name and not marker.closes
        if closes or begins_another or marker.kind in ("turn", "role", "header"):
            self._read_body(region)
        elif region.inside and marker.kind == "think":
            self._close_region(region)
        else:
            region.is_structured = True
            self._keep(end)

    def _call_after(self, region: _Region) -> None:
        """Behind a body: its closing marker, another call, or anything else, with which the region ends."""
        buf = self._buf
        space = _AFTER_CALL.match(buf, self._at)
        assert space is not None
        self._keep(space.end())
        if (at := self._at) == len(buf):
            return
        found = self._marker(at) if buf[at] in START else None
        if found is not None:
            marker, end = found
            if marker.closes and marker.kind in ("call", "weak_call", "part", "result"):
                self._keep(end)
                region.body = []
                return
            if marker.kind == "call" and not marker.closes:
                self._keep(end)
                region.marker, region.is_result = marker, False
                return region.next_value("start")
        if region.is_json and (buf[at] == "{" or (buf[at] == "[" and found is None)):
            return region.next_value("json")
        self._end_call(region)

    def _end_call(self, region: _Region) -> None:
        behind = re.sub(rf"[}}\]{SEAMS}]", "", "".join(region.body))
        self._close_region(region)
        if not region.inside:
            self._say(behind)

    def _read_body(self, region: _Region) -> None:
        """The body is whole: hand its calls on, or drop it."""
        body = "".join(region.body).translate(_NO_SEAMS)
        region.next_value("after")
        calls = [] if region.is_result else read_calls(body, region.marker.word, self._rules.tools)
        if self._is_thought(region):
            self._late += calls
        elif calls:
            self._emit_calls(calls)
        elif body.strip() and not region.is_result:
            self.hold.drop("invalid")

    def _is_thought(self, region: _Region) -> bool:
        """Whether the region lies in a thought so far: one that the reasoning field began may end in the text."""
        return region.inside == "thought" or (region.inside == REASONING and self._in_reasoning)

    def _close_region(self, region: _Region) -> None:
        self._region, self._state = None, "thought" if region.inside == "thought" else "text"
        if not self._is_thought(region):
            self._gone(0)
        self._line, self._before = True, ""

    def _emit_calls(self, calls: list[Call]) -> None:
        for call in calls:
            if call.name in self._rules.tools:
                self.hold.call(call.name, call.arguments, "rescued")
            elif self._rules.strips_unasked:
                self.hold.drop("unasked")
            else:
                self.hold.call(call.name, call.arguments, "invalid")

    def _unfinished_call(self, region: _Region) -> None:
        """The reply ended inside a call: one that only lacks its brackets is whole, and prose is given back."""
        if region.mode == "after":
            return self._end_call(region)
        body, word = "".join(region.body), region.marker.word
        answer = body.rpartition(CONTENT)[2]
        if region.inside == REASONING and answer != body and not set("<{[}]") & set(answer):
            self._close_region(region)  # the thought left it open, and the answer has nothing of a call
            return self._say(answer)
        body = body.translate(_NO_SEAMS)
        is_prose = not (region.inside or region.is_structured or _STRUCTURE.search(body))
        if is_prose and len(body.split()) > 1 and region.marker.name not in ("python_tag", "TOOL_CALLS"):
            self._region, self._state = None, "text"
            return self._say(body)
        is_cut = self._is_cut and not region.is_result
        if body.strip() and is_cut and (cut := cut_call(body, word, self._rules.tools)):
            self._emit_calls([] if region.inside else [cut])
        elif body.strip():
            self._read_body(region)
        self._close_region(region)

    # Calls without a marker.

    def _candidate_step(self) -> None:
        one, buf = self._candidate, self._buf
        assert one is not None
        if one.mode == "value":
            return self._candidate_value(one)
        space = (_BEHIND_VALUE if one.mode == "behind" else _SPACE).match(buf, self._at)
        assert space is not None
        self._hold_back(one, space.end())
        if (at := self._at) == len(buf):
            return
        char = buf[at]
        if char in "{[" and one.mode != "closed" and not one.is_python:
            one.mode, one.scanner, one.value = "value", ValueScanner(), []
        elif one.mode == "lead":
            self._end_fence(one, char, at)
        elif (one.mode == "behind" and char in f"\n{SEAMS}") or self._may_follow_call(at):
            self._end_candidate(one)
        else:
            self._release(one, at)

    def _hold_back(self, one: _Candidate, end: int) -> None:
        one.text.append(self._buf[self._at : end])
        self._at = end

    def _end_fence(self, one: _Candidate, char: str, at: int) -> None:
        buf = self._buf
        run = _RUN.match(buf, at) if one.calls is not None and char == one.fence[0] else None
        self._wait_if(run is not None and run.end() == len(buf) and len(buf) - at < MAX_TAG)
        behind = at if run is None or len(run[1]) < len(one.fence) else run.end()
        is_end = behind > at and (buf[behind : behind + 1] in ("", "\n") or self._may_follow_call(behind))
        if run is None or not is_end:
            return self._release(one, at)
        self._hold_back(one, run.end())
        one.mode = "closed"

    def _candidate_value(self, one: _Candidate) -> None:
        try:
            end = one.scanner.feed(self._buf, self._at)
        except NotJSON as error:
            return self._release(one, error.at)
        one.value.append(self._buf[self._at : end])
        self._hold_back(one, end)
        if not one.scanner.done:
            return
        found = self._calls_in(one)
        if found is None:
            return self._release(one, end)
        one.calls = [*(one.calls or ()), *found]
        one.mode = "lead" if one.fence else "behind"

    def _calls_in(self, one: _Candidate) -> list[Call] | None:
        text, tools = "".join(one.value).translate(_NO_SEAMS), self._rules.tools
        if one.is_python:
            return python_calls(text, "", tools) or None
        own = ("arguments", "parameters") if self._rules.format in OWN_JSON else ("arguments",)
        return declared_calls(text, tools, own if not one.fence or self.hold.is_blank else ())

    def _may_follow_call(self, at: int) -> bool:
        """Whether a marker stands here that may follow a call."""
        found = self._marker(at) if self._buf[at] in START else None
        return found is not None and (found[0].kind in ("turn", "role", "header", "token") or found[0].closes)

    def _end_candidate(self, one: _Candidate) -> None:
        """Nothing followed: these were calls."""
        self._candidate, self._state = None, "text"
        self._emit_calls(one.calls or [])
        if not one.calls:
            self.hold.drop("invalid")
        self._gone(0)

    def _unfinished_candidate(self, one: _Candidate) -> None:
        """The reply ended inside it: a value that only lacks its brackets is whole."""
        if one.mode == "value":
            found = self._calls_in(one)
            found = [] if found is None and one.is_python else found
            one.calls = found and [*(one.calls or ()), *found]
        if one.calls is not None:
            self._end_candidate(one)
        else:
            self._release(one, self._at)

    def _release(self, one: _Candidate, at: int) -> None:
        """It is text: read it again as such, up to the position `at` in the buffer."""
        text = "".join(one.text)
        if (earlier := len(text) - self._at) > 0:  # it began before this buffer
            self._buf, self._at, at = text + self._buf[self._at :], len(text), at + earlier
        self._at -= len(text)
        self._not_before = max(at, self._at + 1)
        self._candidate, self._state, self._line = None, "text", True


_STEPS: dict[str, Callable[[Parser], None]] = {
    "text": Parser._lex,
    "thought": Parser._lex,
    "call": Parser._call_step,
    "candidate": Parser._candidate_step,
    "json": Parser._json_step,
    "ended": Parser._ended_step,
}
_BODY_STEPS: dict[str, Callable[[Parser, _Region], None]] = {
    "start": Parser._call_start,
    "json": Parser._call_json,
    "until": Parser._call_until,
    "after": Parser._call_after,
}
"""Each step takes what it can of the buffer."""
