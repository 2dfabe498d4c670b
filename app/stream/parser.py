"""The reply parser: a transducer over the characters of one choice. Pure.

What comes out depends on the concatenated text alone, wherever it was cut (tests/app/stream/test_every_cut.py). The state is
the region in which the text stands (speech, a thought, a call, …), what is known of its line and of code around it, and the
suffix that is not decided yet. Inside a region nothing is speech; outside all is, untouched. Markers are data
(`gates.contracts.markers`); a marker that is quoted, in code, or mentioned inside its line opens nothing. Every region ends: a value
ends at its last bracket, a thought at its first closing tag, and what is open at the end of the reply is read once more.

The engine's two fields are one text with a seam (`SEAMS`) between them, which markers and calls may span.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from app.stream.call_reader import Call, cut_call, declared_calls, names_declared, python_calls, read_calls
from app.stream.holdback import CUT, HoldBack
from app.stream.joiner import RUN
from app.stream.json_value import NotJSON, ValueScanner
from app.stream.schema import Tools
from gates.contracts.markers import MAX_TAG, SEAMS, START, Marker, find, is_half, match, may_become
from gates.reply.events import Broken, CallArguments, CallStart, Event, Finish, Text, Thought

REASONING, CONTENT = SEAMS[0], SEAMS[1]
"""The fields of an engine's reply; each is named by the seam that begins it."""
HOLD = 512
"""Characters of a line that are looked at to see whether a marker in it is quoted or mentioned."""

_STOP = re.compile(f"[{re.escape(START)}`~\\n{{{SEAMS}]")
_BODY_STOP = re.compile(f"[{re.escape(START)}\\n]")
_SEAMS = re.compile(f"[{SEAMS}]")
_NO_SEAMS = {ord(char): None for char in SEAMS}
_NO_INFO = re.compile(f"[`<&\uff1c\u25c1{SEAMS}]")
_SPACE = re.compile(rf"[\s{SEAMS}]*")
_BLANK = re.compile(r"[ \t]*")
_BEHIND_VALUE = re.compile(r"[ \t]*[;,]?[ \t]*")
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
_PREFIX = re.compile(rf"{_NAME}(?:{_CALL_ID}[\w{SEAMS}-]{{0,64}})?(?:{_ARGS})?[\s{SEAMS}]{{0,16}}(?=[{{<])")
_PREFIX_BEGUN = re.compile(
    rf"{_NAME}(?:\[[A-Z_{SEAMS}]{{0,9}}\]?[\w{SEAMS}-]{{0,64}}){{0,2}}[\s{SEAMS}]{{0,16}}"
)
_FENCE = re.compile(r"(`{3,}|~{3,})[^`\n]*\n")
_FENCE_BEGUN = re.compile(r"`{1,2}|(`{3,}|~{1,})[^`\n]*")
_PYTHON = re.compile(r"\[\s*[A-Za-z_][\w.]*\(")
_PYTHON_BEGUN = re.compile(r"\[\s*(?:[A-Za-z_][\w.]{0,128})?")
MAX_FIRST_KEY = 64
_FIRST_KEY = re.compile(r'\{\s*"(?:name|arguments|type|id|function)"')
_FIRST_KEY_BEGUN = re.compile(r'\{\s*(?:"[a-z]{0,9})?')
"""What a call without a marker begins with, where the request declared no tools."""
_MESSAGE = re.compile(r"<[|\uff5c]message[|\uff5c]>")
_SEPARATOR = re.compile(r"<\|sep\|>")
_END_HEADER = re.compile(r"<\|end_header_id\|>")
_ROLE = re.compile(r"\s{0,2}([\w-]{1,32})[ \t]*(?=[^\w-])\n?")
_ROLE_BEGUN = re.compile(r"\s{0,2}[\w-]{0,32}[ \t]*")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w.-]{1,128})")
_RESUMES = "<|start|>"
_SPEAKERS = ("assistant", "answer", "model", "bot", "final", "gpt")
_THINKERS = ("think", "thought", "reason", "reasoning", "analysis", "thinking")
_OTHERS = ("user", "system", "tool", "developer", "observation", "human")
MAX_RUN = 64
"""Backticks or tildes in a row that mean something."""
MAX_HEADER = 300
"""Characters of a message's header."""
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


class _Region:
    """A call: its marker, what was read of it, and what it is waiting for (start, json, until, after)."""

    def __init__(self, marker: Marker, raw: str, inside: str) -> None:
        self.marker = marker
        self.inside = inside  # the field or thought that it began in: "" for speech
        self.raw = [raw] if inside else []  # all of it, where it may turn out to be a thought
        self.body: list[str] = []
        self.size = 0
        self.mode = "start"
        self.is_json = False
        self.is_structured = False
        self.scanner = ValueScanner()


class _Candidate:
    """JSON without a marker, alone on its lines or in a fence, that may be a call.

    text: all that is held. mode: lead, value, behind, or closed (the fence is; what follows it decides).
    """

    def __init__(self, text: str, fence: str, is_python: bool = False) -> None:
        self.text = [text] if text else []
        self.fence = fence
        self.is_python = is_python
        self.mode = "lead" if fence else "value"
        self.scanner = ValueScanner(loose=is_python)
        self.value: list[str] = []
        self.calls: list[Call] = []


class Parser:
    """`feed` events and get back what may go out, `close` where the reply broke off. `hold`: the stage that speech goes through."""

    def __init__(self, choice: int, rules: Rules, hold: HoldBack) -> None:
        self.hold = hold
        self._choice = choice
        self._rules = rules
        self._buf = ""  # not decided yet
        self._at = 0  # in `_buf`
        self._base = 0  # the position of `_buf` in the text
        self._state = "text"
        self._arriving = self._field = CONTENT  # the field of what comes in, and of what is read
        self._line = True  # nothing but blanks on this line so far
        self._before = ""  # the last characters
        self._span = 0  # backticks of the code span that is open
        self._fence = ""  # the run that opened the code fence
        self._fence_opened = False  # a thought's opening tag stands in it
        self._kind = ""  # of the thought: tag, or message for one that a header began
        self._is_thought_blank = True
        self._rest: list[str] | None = None  # behind a closing tag in code, inside a thought
        self._late: list[Call] = []  # calls in a thought that may never end
        self._not_before = 0  # up to this position no JSON is a candidate
        self._json_was_read = False
        self._is_wrapped = False
        self._resumes = False
        self._marker = Marker("token", False, "")
        self._region: _Region | None = None
        self._candidate: _Candidate | None = None
        self._scanner = ValueScanner()
        self._drops_native = self._is_cut = False
        self._aside = ""  # a call inside a thought, whose text is the thought's if that goes on
        self._waiting: list[
            CallStart | CallArguments
        ] = []  # the engine's own calls, behind what is undecided

    # The stage.

    def feed(self, event: Event) -> list[Event]:
        """Push one event through."""
        if type(event) is Text:
            self._take(event.text, CONTENT)
        elif type(event) is Thought:
            self._take(event.text, REASONING)
        elif type(event) is CallStart or type(event) is CallArguments:
            self._waiting.append(event)
            self._run(False)
        elif type(event) is Finish:
            self._end(event.reason)
            self.hold.finish(event)
        else:
            assert type(event) is Broken
            self.hold.broken(event)
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
        return is_text and not (self._buf or self._line or self._span) and self.hold.is_open

    def passes(self, text: str) -> bool:
        """The short way: whether this text goes out as it is; if so, it is taken."""
        if text[-1:] in RUN or _STOP.search(text) is not None:
            return False
        self._base += len(text)
        self._before = (self._before + text)[-8:]
        self.hold.joiner.last = text[-1]
        return True

    def end_thought(self) -> list[Event]:
        """The engine ended its thought by a token that is not in the text."""
        if self._state == "thought":
            rest, self._buf = self._buf, ""
            self._base += len(rest)
            self._say(rest)
            self._end_thought()
        elif self.hold.may_be_thinking:
            self._run(True)
            self.hold.orphan()
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
        while _STEPS[self._state](self, final):
            pass
        self._base += self._at
        self._buf, self._at = self._buf[self._at :], 0
        if self._not_before <= self._base:
            self._not_before = 0
        if self._waiting and (final or (not self._buf and self._state in ("text", "thought", "ended"))):
            for event in self._waiting:
                self._native(event)
            self._waiting = []

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
            self._hand_on(self._late)
        self._late = []

    # Text, and the constructs of it.

    @property
    def _in_reasoning(self) -> bool:
        return self._field == REASONING

    def _say(self, text: str) -> None:
        """Text to the letter, in whatever region it stands."""
        if not text:
            return
        if self._aside:
            if text.isspace() and (self._state == "thought" or self._in_reasoning):
                self._aside += text
                return
            self._think_aside()
        at = text.rfind("\n")
        if at >= 0:
            self._line, self._span = True, 0
        if (tail := text[at + 1 :]) and not tail.isspace():
            self._line = False
        self._before = (self._before + text)[-8:]
        if self._state == "thought":
            self._is_thought_blank = self._is_thought_blank and text.isspace()
            if self._rest is not None:
                self._rest.append(text)
            self.hold.thought(text, "field" if self._field == REASONING else "tag")
        elif self._in_reasoning:
            self.hold.thought(text, "field")
        else:
            if not text.isspace():  # an answer follows the thought, so that no call in it was meant
                self._late = []
            self.hold.text(text)

    def _think_aside(self) -> None:
        """The thought goes on, so that the call in it was a part of it."""
        aside, self._aside = self._aside, ""
        if aside:
            self.hold.thought(aside, "tag" if self._state == "thought" else "field")

    def _lex(self, final: bool) -> bool:
        """Text and thoughts: literal up to the next thing of interest, and that by its kind."""
        state = self._state
        while self._at < len(self._buf):
            buf, at = self._buf, self._at
            found = _STOP.search(buf, at)
            stop = len(buf) if found is None else found.start()
            self._say(buf[at:stop])
            self._at = stop
            if found is None:
                return False
            after = self._at_stop(buf[stop], stop, final)
            if after < 0:
                return False
            self._at = after
            if self._state != state:
                return True
        return False

    def _at_stop(self, char: str, at: int, final: bool) -> int:
        """Where what stands here ends; -1: that is not known yet."""
        if char == "\n":
            return self._literal(at, at + 1)
        if char in SEAMS:
            return self._seam(char, at)
        if char in "`~":
            return self._ticks(char, at, final)
        if char == "{":
            return self._value(at, final)
        found = match(self._buf, at)
        if found is None or (char == "[" and found[1] == len(self._buf) and not final):
            if not final and len(self._buf) - at <= MAX_TAG and may_become(self._buf, at):
                return -1
            if found is None:
                return self._no_marker(char, at, final)
        if seams := _SEAMS.findall(
            self._buf, at, found[1]
        ):  # a marker that one field begins and the other ends
            self._seam(seams[-1], at)
        return self._decide(*found, at, final)

    def _no_marker(self, char: str, at: int, final: bool) -> int:
        rest = self._buf[at:]
        if final and not (self._fence or self._span) and may_become(rest, 0) and is_half(rest):
            self.hold.removed()
            return len(self._buf)
        return self._value(at, final) if char == "[" else self._literal(at, at + 1)

    def _literal(self, at: int, end: int) -> int:
        for seam in _SEAMS.finditer(self._buf, at, end):
            self._say(self._buf[at : seam.start()])
            at = self._seam(seam[0], seam.start())
        self._say(self._buf[at:end])
        return end

    def _gone(self, end: int) -> int:
        """What ends here was taken out; a line begins behind it."""
        if not self._in_reasoning:
            self.hold.removed()
        self._line, self._before = True, ""
        return end

    def _seam(self, field: str, at: int) -> int:
        if field == REASONING and self._state == "thought" and self._is_thought_blank:
            self._end_thought()  # a template's `<think>`, before the engine's own field
        self._think_aside()
        if field == CONTENT and self._state == "text":
            self.hold.reasoning_ends()
        self._field = field
        if self._state == "text":
            self._line, self._before, self._span, self._fence = True, "", 0, ""
        return at + 1

    def _ticks(self, char: str, at: int, final: bool) -> int:
        """A run of backticks or tildes: a code span or a fence begins or ends, or it is text."""
        buf, size = self._buf, len(self._buf)
        end = at
        while end < min(size, at + MAX_RUN) and buf[end] == char:
            end += 1
        number = end - at
        if number >= MAX_RUN:
            return self._literal(at, end)
        if end == size and not final:
            return -1
        if self._fence:
            blank = _BLANK.match(buf, end)
            assert blank is not None
            if self._line and char == self._fence[0] and number >= len(self._fence):
                if blank.end() == size and not final:
                    return -1 if size - at < HOLD else self._literal(at, end)
                if blank.end() == size or buf[blank.end()] == "\n":
                    self._fence = ""
            return self._literal(at, end)
        if self._line and number >= 3:
            newline = buf.find("\n", end, end + MAX_TAG)
            if newline < 0 and size - end < MAX_TAG and not final:
                return -1
            if newline >= 0 and not _NO_INFO.search(buf, end, newline):
                return self._begin_fence(char * number, at, newline + 1)
        if char == "`":
            self._span = number if not self._span else 0 if self._span == number else self._span
        return self._literal(at, end)

    def _begin_fence(self, run: str, at: int, end: int) -> int:
        if self._may_be_call(at):
            self._candidate, self._state = _Candidate(self._buf[at:end], run), "candidate"
            return end
        self._fence, self._fence_opened = run, False
        return self._literal(at, end)

    def _may_be_call(self, at: int) -> bool:
        """Whether JSON without a marker that begins here may be a call."""
        rules = self._rules
        if self._state != "text" or self._in_reasoning or rules.json or not rules.finds_calls:
            return False
        if self._base + at < self._not_before:
            return False
        return bool(rules.tools or rules.format in OWN_JSON) or _FIRST_KEY.match(self._buf, at) is not None

    def _value(self, at: int, final: bool) -> int:
        """A bracket that may begin JSON."""
        buf = self._buf
        if (
            self._rules.json
            and not (self._json_was_read or self._in_reasoning or self._fence)
            and self._state == "text"
        ):
            self._json_was_read, self._scanner, self._state = True, ValueScanner(), "json"
            return at
        if not self._line or self._fence:
            return self._literal(at, at + 1)
        if (
            not final
            and buf[at] == "{"
            and len(buf) - at < MAX_FIRST_KEY
            and _FIRST_KEY_BEGUN.fullmatch(buf, at)
        ):
            return -1
        if not self._may_be_call(at):
            return self._literal(at, at + 1)
        is_python = False
        if buf[at] == "[":
            inner = _SPACE.match(buf, at + 1)
            assert inner is not None
            if inner.end() == len(buf) and not final and len(buf) - at < HOLD:
                return -1
            is_python = self._rules.format in OWN_PYTHON and _PYTHON.match(buf, at) is not None
            if (
                not is_python
                and self._rules.format in OWN_PYTHON
                and not final
                and _PYTHON_BEGUN.fullmatch(buf, at)
            ):
                return -1
            if not is_python and buf[inner.end() : inner.end() + 1] != "{":
                return self._literal(at, at + 1)
        self._candidate, self._state = _Candidate("", "", is_python), "candidate"
        return at

    # Markers.

    def _decide(self, marker: Marker, end: int, at: int, final: bool) -> int:
        """What a whole marker does where it stands; -1: that depends on what follows."""
        if self._before[-1:].isalnum() and self._buf[at + 1].isupper() and self._buf[at + 2].islower():
            return self._literal(at, end)  # a generic type: Box<Thought>
        if self._fence:
            return self._in_fence(marker, at, end)
        if self._span:
            closing = self._find_on_line(rf"(?<!`)`{{{self._span}}}(?!`)", end, final)
            if closing is None:
                return -1
            if closing >= 0:
                self._skip_closer(marker)
                return self._literal(at, end)
            self._span = 0
        if (quote := _QUOTES.get(self._before[-1:])) is not None:
            if end == len(self._buf) and not final:
                return -1
            if self._buf[end : end + 1] == quote:
                self._skip_closer(marker)
                return self._literal(at, end)
            if not marker.closes and self._state == "text" and quote not in ")]":
                closing = self._find_on_line(rf"[>\uff1e\]\u25b7;)}}]{re.escape(quote)}", end, final)
                if closing is None:
                    return -1
                if closing >= 0:
                    return self._literal(at, closing)
        if self._state == "thought":
            return self._in_thought(marker, at, end, final)
        return self._in_text(marker, at, end, final)

    def _find_on_line(self, pattern: str, at: int, final: bool) -> int | None:
        """Where this ends on the line; -1 if it is not there; None if it may still come."""
        buf, size = self._buf, len(self._buf)
        newline = buf.find("\n", at, at + HOLD)
        stop = newline if newline >= 0 else min(size, at + HOLD)
        found = re.compile(pattern).search(buf, at, stop)
        if found is not None and (found.end() < size or final):
            return found.end()
        return None if newline < 0 and size - at < HOLD and not final else -1

    def _skip_closer(self, marker: Marker) -> None:
        """A thought's closing tag in code or in quotes: if no other comes, it was the end."""
        if self._state == "thought" and marker.kind == "think" and marker.closes:
            self._rest = []

    def _in_fence(self, marker: Marker, at: int, end: int) -> int:
        """Code is text. But a closing tag on a line of its own ends a thought whose fence was left open."""
        if marker.kind == "think" and marker.closes and self._line and not self._fence_opened:
            if self._state == "thought":
                self._end_thought()
                return end
            if self.hold.is_guarding and not self._in_reasoning:
                self._fence = ""
                self.hold.orphan()
                return self._gone(end)
        if marker.kind == "think" and not marker.closes:
            self._fence_opened = True
        literal = self._literal(at, end)
        self._skip_closer(marker)
        return literal

    def _in_thought(self, marker: Marker, at: int, end: int, final: bool) -> int:
        is_message = self._kind == "message"
        if marker.kind == "think" and marker.closes:
            self._end_thought()
            return end
        if marker.kind == "role":
            return self._end_reply(end)
        if marker.kind == "turn":
            if not is_message or marker.name == "return":
                return self._end_reply(end)
            self._end_thought()
            return end
        if marker.kind == "header" and is_message:
            self._end_thought()
            return at
        if marker.kind == "call" and not marker.closes:
            return self._open_call(marker, at, end, final)
        return self._literal(at, end)

    def _in_text(self, marker: Marker, at: int, end: int, final: bool) -> int:
        kind = marker.kind
        if kind == "think":
            return self._think(marker, at, end, final)
        if kind in ("call", "weak_call", "result") and not self._rules.finds_calls and not self._in_reasoning:
            return self._literal(at, end)
        if kind in ("call", "weak_call"):
            return self._call_marker(marker, at, end, final)
        if kind == "part" or (self._in_reasoning and kind != "header"):
            return self._literal(at, end)
        if kind == "wrapper":
            opens = not marker.closes and self._line and self.hold.told_apart
            if not (opens or (marker.closes and self._is_wrapped)):
                return self._literal(at, end)
            self._is_wrapped = opens
            return self._gone(end)
        mentioned = self._is_mentioned(end, final)
        if mentioned is None:
            return -1
        if mentioned and end < len(self._buf):
            return self._literal(at, end)
        if kind == "result":
            return self._gone(end) if marker.closes else self._enter("result", marker, end)
        if kind == "header":
            return self._enter("header", marker, end)
        if kind == "role" or (kind == "turn" and marker.name not in ("call", "/s")):
            return (
                self._gone(end)
                if kind == "turn" and self.hold.is_blank
                else self._end_reply(end, marker.name == "end")
            )
        if marker.name == "/s" and not final and end == len(self._buf):
            return -1
        if marker.name == "/s" and self._buf[end : end + 1] not in ("", "[", "<"):
            return self._literal(at, end)
        return self._gone(end)

    def _enter(self, state: str, marker: Marker, end: int) -> int:
        self._marker, self._scanner, self._state = marker, ValueScanner(), state
        return self._gone(end)

    def _is_mentioned(self, end: int, final: bool) -> bool | None:
        """Whether a marker is a word of a sentence: blanks before it, and a word or a sign behind it. None: not known yet."""
        if self._line or _WITHIN.search(self._before) is None:
            return False
        behind = self._buf[end : end + 2]
        if not behind:
            return True if final else None
        if behind[0] in " \t\xa0":
            if len(behind) < 2:
                return True if final else None
            return behind[1].isalpha() and not behind[1].isupper()
        return behind[0] in ".,;:!?)…，。"

    def _think(self, marker: Marker, at: int, end: int, final: bool) -> int:
        if self._in_reasoning:
            return self._literal(at, end)
        if marker.empty:
            return self._gone(end)
        mentioned = self._is_mentioned(end, final)
        if mentioned is None:
            return -1
        if marker.closes:
            if mentioned and end < len(self._buf):
                return self._literal(at, end)
            self.hold.orphan()
            return self._gone(end)
        if mentioned:
            return self._doubt(marker, at, end, final)
        return self._begin_thought("tag", end)

    def _begin_thought(self, kind: str, end: int) -> int:
        self._gone(end)
        self._state, self._kind, self._is_thought_blank = "thought", kind, True
        self._span, self._fence = 0, ""
        return end

    def _end_thought(self) -> None:
        self._think_aside()
        self._state, self._rest, self._late, self._aside = "text", None, [], ""
        self._span, self._fence, self._line, self._before = 0, "", True, ""
        self.hold.thought_ends()

    def _doubt(self, marker: Marker, at: int, end: int, final: bool) -> int:
        """An opening marker inside a sentence: a mention, unless its closing one follows on the line, with more than `and` between."""
        buf, size = self._buf, len(self._buf)
        newline = buf.find("\n", end, end + HOLD)
        stop = newline if newline >= 0 else min(size, end + HOLD)
        for other, start, behind in find(buf, end, stop):
            if other.closes and other.kind == marker.kind:
                if _CONNECTIVE.fullmatch(buf, end, start):
                    return self._literal(at, behind)
                return (
                    self._begin_thought("tag", end)
                    if marker.kind == "think"
                    else self._begin_call(marker, at, end)
                )
        if newline < 0 and size - end < HOLD and not final:
            return -1
        if marker.kind != "think" and _STRUCTURE.search(buf, end, stop):
            return self._begin_call(marker, at, end)
        return self._literal(at, end)

    def _end_reply(self, end: int, resumes: bool = False) -> int:
        """A turn is over: what follows is somebody else's, made up."""
        if self._state == "thought" and self._kind == "message":
            self._end_thought()
        self._state, self._resumes = "ended", resumes
        self.hold.removed()
        return end

    def _ended_step(self, final: bool) -> bool:
        """Only a message's header brings the reply back (gpt-oss ends each of its messages)."""
        buf = self._buf
        at = buf.find(_RESUMES, self._at) if self._resumes else -1
        if at >= 0:
            self._at, self._state = at, "text"
            return True
        keep = 0
        if self._resumes and not final:
            keep = next(
                (
                    n
                    for n in range(min(len(_RESUMES) - 1, len(buf) - self._at), 0, -1)
                    if buf.endswith(_RESUMES[:n])
                ),
                0,
            )
        self._at = len(buf) - keep
        return False

    # Messages' headers, and what tools answered.

    def _header_step(self, final: bool) -> bool:
        """The role or channel behind a header's token decides what the message is."""
        buf, at, name = self._buf, self._at, self._marker.name
        has_room = len(buf) - at < MAX_HEADER and not final
        if name in ("im_start", "start_of_turn"):
            role = _ROLE.match(buf, at)
            if role is None and has_room and _ROLE_BEGUN.fullmatch(buf, at):
                return False
            return self._message(
                "" if role is None else role[1].lower(), at if role is None else role.end(), final
            )
        if name in ("message", "end_header_id"):
            return self._message("assistant", at, final)
        if name in ("open", "close"):
            return self._element_header(name == "open", final)
        end = (_END_HEADER if name == "start_header_id" else _MESSAGE).search(buf, at, at + MAX_HEADER)
        if end is None:
            if has_room:
                return False
            return self._message("", len(buf) if final else at, final)
        head = buf[at : end.start()].translate(_NO_SEAMS).strip().lower()
        if (tool := _RECIPIENT.search(buf, at, end.start())) is not None and "assistant" not in tool[1]:
            self._at, self._state = end.end(), "text"
            self._begin_call(Marker("call", False, "message", tool[1]), at, end.end())
            return True
        channel = re.split(r"[\s|<>]+", f"{name if name != 'start' else ''} {head}")
        role_name = next(
            (w for w in channel if w in ("final", *_THINKERS, "commentary", *_OTHERS)), "assistant"
        )
        return self._message("thought" if role_name == "commentary" else role_name, end.end(), final)

    def _element_header(self, opens: bool, final: bool) -> bool:
        """Kimi K3's `<|open|>NAME …<|sep|>` and `<|close|>NAME<|sep|>`."""
        buf, at = self._buf, self._at
        end = _SEPARATOR.search(buf, at, at + MAX_HEADER)
        if end is None and len(buf) - at < MAX_HEADER and not final:
            return False
        name = "" if end is None else buf[at : end.start()].partition(" ")[0]
        self._at, self._state = (
            len(buf) if end is None and final else at if end is None else end.end(),
            "text",
        )
        if opens and name == "think":
            self._begin_thought("message", self._at)
        elif opens and name not in ("response", "message", ""):
            self._enter("result", Marker("result", False, "open"), self._at)
        else:
            self._gone(self._at)
        return self._at < len(buf)

    def _message(self, role: str, end: int, final: bool) -> bool:
        self._at, self._state = end, "text"
        if role in _THINKERS:
            self._begin_thought("message", end)
        elif role in _OTHERS or role.startswith("functions."):
            self._end_reply(end, resumes=True)
        else:
            self._gone(end)
        return not final or end < len(self._buf)

    def _result_step(self, final: bool) -> bool:
        """What a tool answered, made up: to the end of its JSON, or to its closing marker."""
        buf = self._buf
        space = _SPACE.match(buf, self._at)
        assert space is not None
        if not self._scanner.stack and not self._marker.closes:
            self._at = space.end()
            if self._at == len(buf):
                return False
            is_json = buf[self._at] in "{["
            self._marker = self._marker._replace(closes=True, empty=is_json)  # the body has begun
        if self._marker.empty:
            try:
                self._at = self._scanner.feed(buf, self._at)
            except NotJSON:
                self._marker = self._marker._replace(empty=False)
                return True
            if self._scanner.done:
                self._state = "text"
                self._gone(self._at)
            return self._scanner.done
        while (found := _BODY_STOP.search(buf, self._at)) is not None:
            self._at = found.start()
            marker = match(buf, self._at)
            if marker is None:
                if not final and len(buf) - self._at <= MAX_TAG and may_become(buf, self._at):
                    return False
                self._at += 1
                continue
            if marker[0].name == "close":
                self._state = "text"
                return True
            self._at = marker[1]
            if marker[0].kind == "result" and marker[0].closes:
                self._state = "text"
                self._gone(self._at)
                return True
        self._at = len(buf)
        return False

    def _json_step(self, final: bool) -> bool:
        """The JSON that was asked for goes out to the letter."""
        at = self._at
        try:
            end = self._scanner.feed(self._buf, at)
        except NotJSON:
            end = at
            self._scanner.done = True
        if SEAMS[0] in self._buf[at:end] or SEAMS[1] in self._buf[at:end]:
            self._field = next(c for c in reversed(self._buf[at:end]) if c in SEAMS)
        self._state = "text"
        self._say(self._buf[at:end].translate(_NO_SEAMS))
        self._at = end
        self._state = "text" if self._scanner.done else "json"
        return self._scanner.done

    # Calls behind a marker.

    def _call_marker(self, marker: Marker, at: int, end: int, final: bool) -> int:
        if not marker.closes:
            return self._open_call(marker, at, end, final)
        mentioned = self._is_mentioned(end, final)
        if mentioned is None:
            return -1
        if self._in_reasoning or marker.kind == "weak_call" or (mentioned and end < len(self._buf)):
            return self._literal(at, end)
        return self._gone(end)

    def _open_call(self, marker: Marker, at: int, end: int, final: bool) -> int:
        """An opening marker: what stands behind it tells a call from a mention, and from an element of somebody's XML."""
        buf = self._buf
        space = _SPACE.match(buf, end, end + HOLD)
        assert space is not None
        body = space.end()
        if body == len(buf) and body - end < HOLD and not final:
            return -1
        char = buf[body : body + 1] or " "
        is_inside = self._state == "thought" or self._in_reasoning
        is_structured = char in "{[<" or bool(marker.word)
        if is_inside and marker.kind == "call":
            is_structured = is_structured or _PREFIX.match(buf, body) is not None
            if (
                not (is_structured or final)
                and len(buf) - body < MAX_HEADER
                and _PREFIX_BEGUN.fullmatch(buf, body)
            ):
                return -1
        is_alone = char not in "{[<" and "\n\n" in buf[end:body]
        is_element = marker.kind == "weak_call" and char not in "{["
        if is_alone or is_element or (is_inside and not is_structured):
            return self._literal(at, end)
        if char not in "{[<" and not is_inside:
            mentioned = self._is_mentioned(end, final)
            if mentioned is None:
                return -1
            if mentioned or (body > end and "\n" not in buf[end:body] and char.islower()):
                return self._doubt(marker, at, end, final)
        return self._begin_call(marker, at, end)

    def _begin_call(self, marker: Marker, at: int, end: int) -> int:
        inside = self._state if self._state == "thought" else REASONING if self._in_reasoning else ""
        self._region = _Region(marker, self._buf[at:end], inside)
        self._state = "call"
        return end

    def _keep(self, end: int) -> None:
        """Take the buffer up to `end` into the call's body."""
        region, text = self._region, self._buf[self._at : end]
        assert region is not None
        self._at = end
        if region.inside:
            region.raw.append(text)
        for char in SEAMS:
            if char in text:
                self._field = text[max(text.rfind(REASONING), text.rfind(CONTENT))]
                text = text.translate(_NO_SEAMS)
        region.body.append(text)
        region.size += len(text)

    def _call_step(self, final: bool) -> bool:
        region = self._region
        assert region is not None
        if _BODY_STEPS[region.mode](self, region, final):
            return True
        if final and self._state == "call":
            self._at = len(self._buf)
            return self._unfinished_call(region)
        return False

    def _call_start(self, region: _Region, final: bool) -> bool:
        buf = self._buf
        space = _SPACE.match(buf, self._at)
        assert space is not None
        if space.end() > self._at:
            self._keep(space.end())
        at = self._at
        if at == len(buf) or (buf[at] in SEAMS and self._skip_seam(at)):
            return at < len(buf)
        if region.marker.name in _NAME_FIRST and buf[at] not in "{[":
            prefix = _PREFIX.match(buf, at)
            if (
                prefix is None
                and not final
                and len(buf) - at < MAX_HEADER
                and _PREFIX_BEGUN.fullmatch(buf, at)
            ):
                return False
            if prefix is not None:
                self._keep(prefix.end())
        region.is_json = buf[self._at] in "{["
        region.is_structured = buf[self._at] in "{[<" or bool(region.marker.word)
        region.mode, region.scanner = "json" if region.is_json else "until", ValueScanner()
        return True

    def _skip_seam(self, at: int) -> bool:
        self._keep(at + 1)
        return True

    def _call_json(self, region: _Region, final: bool) -> bool:
        try:
            end = region.scanner.feed(self._buf, self._at)
        except NotJSON as error:
            if region.inside:
                return self._no_call(region)
            self._keep(error.at)
            region.mode, region.is_json = "until", False
            return True
        self._keep(end)
        if region.scanner.done:
            self._read_body(region)
        return region.scanner.done

    def _call_until(self, region: _Region, final: bool) -> bool:
        """A body that is no JSON: to the marker that closes it, or to what cannot stand in it."""
        buf = self._buf
        while (found := _BODY_STOP.search(buf, self._at)) is not None:
            self._keep(found.start())
            at = self._at
            if buf[at] == "\n":
                if not region.is_structured and buf[at + 1 : at + 2] in ("", "\n"):
                    if at + 1 == len(buf) and not final:
                        return False
                    self._read_body(region)
                    return True
                self._keep(at + 1)
                continue
            there = match(buf, at)
            if there is None:
                if not final and len(buf) - at <= MAX_TAG and may_become(buf, at):
                    return False
                self._keep(at + 1)
                continue
            marker, end = there
            if marker.closes and (
                marker.kind in ("call", "weak_call") or marker.name in ("function", "invoke")
            ):
                self._read_body(region)
                self._keep(end)
                region.body = []
                return True
            if marker.kind in ("turn", "role", "header"):
                self._read_body(region)
                return True
            if region.inside and marker.kind == "think":
                return self._no_call(region)
            region.is_structured = True
            self._keep(end)
        self._keep(len(buf))
        return False

    def _call_after(self, region: _Region, final: bool) -> bool:
        """Behind a body: its closing marker, another call, or anything else, with which the region ends."""
        buf = self._buf
        space = _AFTER_CALL.match(buf, self._at)
        assert space is not None
        at = space.end()
        if at == len(buf) and not final:
            return False
        char = buf[at : at + 1]
        found = None
        if char and char in START:
            found = match(buf, at)
            if (
                (found is None or (char == "[" and found[1] == len(buf)))
                and not final
                and len(buf) - at <= MAX_TAG
                and may_become(buf, at)
            ):
                return False
            if found is not None:
                marker, end = found
                if marker.closes and marker.kind in ("call", "weak_call", "part"):
                    self._keep(end)
                    region.body = []
                    return True
                if marker.kind == "call" and not marker.closes:
                    self._set_aside(region)
                    self._keep(end)
                    region.marker, region.body, region.size, region.mode = marker, [], 0, "start"
                    return True
        if char and char in "{[" and region.is_json and (char == "{" or found is None):
            self._keep(at)
            self._set_aside(region)
            region.body, region.size, region.mode, region.scanner = [], 0, "json", ValueScanner()
            return True
        space_behind = re.sub(r"[}\]]", "", buf[self._at : at])
        self._keep(at)
        self._close_region(region)
        self._say(space_behind)
        return True

    def _read_body(self, region: _Region) -> None:
        """The body is whole: hand its calls on, or drop it."""
        body = "".join(region.body)
        region.mode, region.body = "after", []
        calls = read_calls(body, region.marker.word, self._rules.tools)
        if self._is_thought(region):
            self._late += calls
        elif calls:
            self._hand_on(calls)
        elif body.strip():
            self.hold.drop("invalid")

    def _is_thought(self, region: _Region) -> bool:
        """Whether the region lies in a thought as a whole: one that the reasoning field began may end in the text."""
        return region.inside == "thought" or (region.inside == REASONING and self._field == REASONING)

    def _set_aside(self, region: _Region) -> None:
        """What was read of a call inside a thought is that thought's text, if it goes on."""
        if self._is_thought(region):
            self._aside += "".join(region.raw).translate(_NO_SEAMS)
        region.raw = [""] if region.inside else []

    def _close_region(self, region: _Region) -> None:
        self._set_aside(region)
        self._region, self._state = None, "thought" if region.inside == "thought" else "text"
        if not self._is_thought(region):
            self._gone(0)
        self._line = True

    def _no_call(self, region: _Region) -> bool:
        """What began like a call inside a thought is the thought's text: read it again without its marker."""
        raw = "".join(region.raw)
        head = raw[: len(region.raw[0])]
        self._region, self._state = None, "thought" if region.inside == "thought" else "text"
        self._field = REASONING if region.inside == REASONING else self._field
        self._buf, self._base, self._at = raw + self._buf[self._at :], self._base + self._at - len(raw), 0
        self._literal(0, len(head))
        self._at = len(head)
        return True

    def _hand_on(self, calls: list[Call]) -> None:
        for call in calls:
            if call.name in self._rules.tools:
                self.hold.call(call.name, call.arguments, "rescued")
            elif self._rules.strips_unasked:
                self.hold.drop("unasked")
            else:
                self.hold.call(call.name, call.arguments, "invalid")

    def _unfinished_call(self, region: _Region) -> bool:
        """The reply ended inside a call: one that only lacks its brackets is whole, and prose is given back."""
        if region.mode == "after":
            self._close_region(region)
            return False
        body = "".join(region.body)
        is_prose = not region.inside and not region.is_structured and not _STRUCTURE.search(body)
        if is_prose and len(body.split()) > 1 and region.marker.name not in ("python_tag", "TOOL_CALLS"):
            self._region, self._state = None, "text"
            self._say(body)
            return False
        if body.strip():
            region.body = [body + (region.scanner.missing() or "")] if region.is_json else [body]
            if self._is_cut and (cut := cut_call(body, region.marker.word, self._rules.tools)) is not None:
                if not region.inside:
                    self._hand_on([cut])
            elif region.is_json and region.scanner.missing() is None:
                self._drop_unfinished(region)
            else:
                self._read_body(region)
        self._close_region(region)
        return False

    def _drop_unfinished(self, region: _Region) -> None:
        if not region.inside:
            self.hold.drop("invalid")

    # Calls without a marker.

    def _candidate_step(self, final: bool) -> bool:
        one = self._candidate
        assert one is not None
        if one.mode == "value":
            return self._candidate_value(one, final)
        if one.mode == "behind":
            return self._candidate_behind(one, final)
        space = _SPACE.match(self._buf, self._at)
        assert space is not None
        at = space.end()
        one.text.append(self._buf[self._at : at])
        self._at = at
        if at == len(self._buf):
            return self._candidate_end(one) if final else False
        char = self._buf[at]
        if one.mode == "closed":
            fence = _FENCE.match(self._buf, at)
            if (
                fence is None
                and not final
                and len(self._buf) - at < MAX_TAG
                and _FENCE_BEGUN.fullmatch(self._buf, at)
            ):
                return False
            if fence is not None:
                one.text.append(fence[0])
                one.fence, one.mode, self._at = fence[1], "lead", fence.end()
                return True
            marked = self._marker_behind(at, final)
            if marked is None:
                return False
            return self._candidate_end(one) if marked else self._release(one, at)
        if char in "{[":
            one.mode, one.scanner, one.value = "value", ValueScanner(), []
            return True
        if one.calls and char == ",":
            one.text.append(char)
            self._at += 1
            return True
        if one.calls and char == one.fence[0]:
            return self._fence_end(one, at, final)
        return self._release(one, at)

    def _fence_end(self, one: _Candidate, at: int, final: bool) -> bool:
        buf = self._buf
        end = at
        while end < len(buf) and buf[end] == one.fence[0]:
            end += 1
        blank = _BLANK.match(buf, end)
        assert blank is not None
        if blank.end() == len(buf) and not final and len(buf) - at < MAX_TAG:
            return False
        if end - at < len(one.fence) or (blank.end() < len(buf) and buf[blank.end()] != "\n"):
            return self._release(one, at)
        one.text.append(buf[at : blank.end()])
        one.mode, self._at = "closed", blank.end()
        return True

    def _candidate_value(self, one: _Candidate, final: bool) -> bool:
        buf, at = self._buf, self._at
        try:
            end = one.scanner.feed(buf, at)
        except NotJSON as error:
            return self._release(one, error.at)
        one.text.append(buf[at:end])
        one.value.append(buf[at:end])
        self._at = end
        if not one.scanner.done:
            return self._candidate_cut(one) if final else False
        text = "".join(one.value).translate(_NO_SEAMS)
        rules = self._rules
        if one.is_python:
            found = [call for call in python_calls(text) if call.name in rules.tools]
        else:
            found = declared_calls(text, rules.tools, self._own_keys(one))
        if not found:
            return self._release(one, end)
        one.calls += found
        one.mode = "lead" if one.fence else "behind"
        return True

    def _candidate_behind(self, one: _Candidate, final: bool) -> bool:
        """Outside a fence nothing else may stand on the line."""
        buf = self._buf
        space = _BEHIND_VALUE.match(buf, self._at)
        assert space is not None
        at = space.end()
        if at == len(buf) and not final and at - self._at < HOLD:
            return False
        char = buf[at : at + 1]
        if char in ("", "\n", *SEAMS):
            self._at = at
            return self._candidate_end(one)
        if char in "{[" and not one.is_python:
            one.text.append(buf[self._at : at])
            one.mode, one.scanner, one.value, self._at = "value", ValueScanner(), [], at
            return True
        marked = self._marker_behind(at, final)
        if marked is None:
            return False
        if marked:
            self._at = at
            return self._candidate_end(one)
        return self._release(one, at)

    def _marker_behind(self, at: int, final: bool) -> bool | None:
        """Whether a marker stands here that may follow a call. None: not known yet."""
        if self._buf[at] not in START:
            return False
        found = match(self._buf, at)
        if found is None and not final and len(self._buf) - at <= MAX_TAG and may_become(self._buf, at):
            return None
        return found is not None and (found[0].kind in ("turn", "role", "header") or found[0].closes)

    def _own_keys(self, one: _Candidate) -> tuple[str, ...]:
        """The keys by which an object is a call of a tool that was not declared: the templates' own, and in a fence only if the reply is nothing else."""
        if one.fence and not self.hold.is_blank:
            return ()
        return ("arguments", "parameters") if self._rules.format in OWN_JSON else ("arguments",)

    def _candidate_end(self, one: _Candidate) -> bool:
        """Nothing followed: these were calls, or only a fence that was not closed."""
        if not one.calls:
            return self._release(one, self._at)
        self._candidate, self._state = None, "text"
        self._hand_on(one.calls)
        self._gone(0)
        return self._at < len(self._buf)

    def _candidate_cut(self, one: _Candidate) -> bool:
        """The reply ended inside the value: one that only lacks its brackets is whole."""
        missing = None if one.is_python else one.scanner.missing()
        if missing and (found := declared_calls("".join(one.value) + missing, self._rules.tools, ())):
            one.calls += found
            return self._candidate_end(one)
        if names_declared("".join(one.value), self._rules.tools, one.is_python):
            self._candidate, self._state = None, "text"
            self.hold.drop("invalid")
            return False
        return self._release(one, self._at)

    def _release(self, one: _Candidate, at: int) -> bool:
        """It is text: read it again as such, up to the position `at` in the buffer."""
        text = "".join(one.text)
        self._not_before = self._base + at
        self._base += self._at - len(text)
        self._buf, self._at = text + self._buf[self._at :], 0
        self._candidate, self._state, self._line = None, "text", True
        if self._not_before <= self._base:
            self._not_before = self._base + 1
        return True


_STEPS: dict[str, Callable[[Parser, bool], bool]] = {
    "text": Parser._lex,
    "thought": Parser._lex,
    "call": Parser._call_step,
    "candidate": Parser._candidate_step,
    "header": Parser._header_step,
    "result": Parser._result_step,
    "json": Parser._json_step,
    "ended": Parser._ended_step,
}
_BODY_STEPS: dict[str, Callable[[Parser, _Region, bool], bool]] = {
    "start": Parser._call_start,
    "json": Parser._call_json,
    "until": Parser._call_until,
    "after": Parser._call_after,
}
"""Each step takes what it can of the buffer, and says whether another one can go on."""
