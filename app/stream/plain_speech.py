"""Markdown in, sentences for a voice out: `feed` and `close`, the same on any split of the text.

The first characters of a line tell its kind; of a table or a link's definition the whole line is held. What follows is read mark by
mark (emphasis, code, links, addresses), each by one pattern. A mark at the end of the text waits for what follows it, a link at most
to the end of its line. All other text passes at once, and nothing that has gone out is looked at again.
"""

import re
import unicodedata
from contextlib import suppress

LEFT_OUT = {
    "LATIN": "(A code example is left out.)", "CJK": "（此处省略一段代码。）", "HIRAGANA": "（コード例は省略します。）",
    "KATAKANA": "（コード例は省略します。）", "HANGUL": "(코드 예제는 생략합니다.)", "CYRILLIC": "(Пример кода пропущен.)",
    "ARABIC": "(حُذف مثال برمجي.)", "DEVANAGARI": "(कोड का उदाहरण छोड़ा गया है।)", "KANNADA": "(ಕೋಡ್ ಉದಾಹರಣೆಯನ್ನು ಬಿಡಲಾಗಿದೆ.)",
}  # fmt: skip
"""What is said in place of a code block, by the script of the text before it."""

FULL_STOPS = {"CJK": "。", "HIRAGANA": "。", "KATAKANA": "。", "DEVANAGARI": "।", "BENGALI": "।"}
"""What ends a sentence, by the script of its last letter; `.` otherwise."""

PROSE = ("markdown", "md")  # a fence of these is read

LINE_START = 100  # characters by which the kind of a line is known: a longer beginning is text
LINE = 4096  # characters of a line that is held whole: a row of a table
LINK = 2048  # characters of a link or an address

BULLETS = "-*+•◦‣▪●○"
SENTENCE_ENDS = ".!?…:;,。！？：；，、।॥؟؛۔"
CLOSING = "\"'”’»)]）」』"
ESCAPED = "*_`#~|>$%&"
ADDRESSES = ("http://", "https://", "www.", "<http://", "<https://")
BREAKS = ("<br>", "<br/>", "<br />")
JOINER = "\u200d"
EMOJI = (
    "\U0001f000-\U0001fbff\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u231a\u231b\u23e9-\u23f3"
    "\ufe0f\u20e3\U000e0020-\U000e007f"
)

_EMOJI = re.compile(f"[{EMOJI}]")
_UNMARKED = re.compile(rf"(?:(?<=[a-zA-Z0-9])[hw]|[^hw\n \t`*_~\\\[!<{JOINER}{EMOJI}])+")
_BLOCK = re.compile(
    rf"(?P<quote>>(?:(?=>)|\s))|#{{1,6}}(?P<heading>\s)|(?P<bullet>[{BULLETS}]\s)|(?P<number>[0-9]{{1,9}})[.)]\s"
)
_BLOCK_BEGUN = re.compile(
    rf"`{{1,2}}|`{{3,}}[^`]*|~{{1,2}}|~{{3,}}[^`]*|#{{1,6}}|>+|([{BULLETS}_=])(?:\1*|\1\1+\s*)|[0-9]{{1,9}}[.)]?"
)
_FENCE = re.compile(r"(`{3,}|~{3,})\s*([\w+#.-]*)(?:\s+\w+=[^`]*|\s*\{[^`]*)?\s*")
_RULE = re.compile(rf"#*|>|[{BULLETS}]|([-*_=])(?:[ ]*\1){{2,}}[ ]*")
_ROW, _DELIMITERS = re.compile(r"\|[\s:-].*\|"), re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
_CELLS = re.compile(r"(?<!\\)\|")
_RUN = re.compile(rf"([`*_~])\1{{0,{LINE_START}}}")
_IN_BRACKETS = r"(?:[^()\[\n]|\([^()\[\n]*\))*"
_LINK = re.compile(rf"!?\[([^\[\]\n]*)\]\({_IN_BRACKETS}\)")
_LINK_BEGUN = re.compile(rf"!?(?:\[[^\[\]\n]*(?:\](?:\({_IN_BRACKETS}(?:\([^()\[\n]*)?)?)?)?")
_IN_ADDRESS = r"[^\s<>\"`|\]\x7f-\U0010ffff"
_ADDRESS = re.compile(rf"<?(?:https?://|www\.){_IN_ADDRESS}()]*(?:\({_IN_ADDRESS}]*)?")
_HOST = re.compile(r"<?(?:https?://)?(?:[^/@\s]*@)?(?:www\.)?([^/?#:\s]+)")


class _Undecided(Exception):
    """What stands here depends on characters that have not come yet."""


def _is_word(char: str) -> bool:
    """Whether `char` belongs to a word of a script in which a mark inside a word is no emphasis."""
    return char.isalnum() and char < "\u0590"


class _Voice:
    """What goes out. A blank or a line end waits for the character behind it, so none is doubled or left over."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.begun = False  # something was said
        self.breaks = 0  # line ends that wait
        self.is_title = False  # all of the line so far is strong
        self._gap = False  # a blank waits
        self._left_out = False  # something was left out since the last character
        self._ended = True  # the last sentence has its full stop
        self._letter = "a"  # the last letter

    @property
    def script(self) -> str:
        return unicodedata.name(self._letter, "LATIN").split(" ", 1)[0]

    def say(self, text: str) -> None:
        if self.breaks and self.begun:
            self.out.append("\n" * min(self.breaks, 2))
        elif self._gap and self.begun and not (self._left_out and text[0] in SENTENCE_ENDS):
            self.out.append(" ")
        self.out.append(text)
        self.begun, self.breaks, self._gap, self._left_out, self.is_title = True, 0, False, False, False
        self._letter = next((char for char in reversed(text) if char.isalpha()), self._letter)
        if words := text.rstrip(CLOSING):
            self._ended = words[-1] in SENTENCE_ENDS

    def blank(self, left_out: bool = False) -> None:
        """A blank, or something that is left out."""
        self._gap, self._left_out = True, self._left_out or left_out

    def end_sentence(self) -> None:
        """A full stop, where none stands."""
        if not self._ended:
            self.out.append(FULL_STOPS.get(self.script, "."))
            self._ended = True


class PlainSpeech:
    """The text of one reply. What is fed after `close` begins a new paragraph."""

    def __init__(self) -> None:
        self._voice = _Voice()
        self._buf = ""  # not decided yet
        self._in_line = False  # the kind of the line is known: it is text
        self._block = ""  # "item", "heading", or text
        self._is_owed = False  # an item's line has ended: a full stop, if it does not go on
        self._fence = ""  # what opened the fence that is open
        self._is_code = False  # nothing in it is read
        self._reset()

    def feed(self, text: str) -> str:
        """What may be said by now."""
        self._buf += text.replace("\r", "")
        at = 0
        with suppress(_Undecided):
            while at < len(self._buf):
                at = self._mark(self._buf, at) if self._in_line else self._begin_line(at)
        self._buf = self._buf[at:]
        spoken = "".join(self._voice.out)
        self._voice.out.clear()
        return spoken

    def close(self) -> str:
        """The rest: the reply is over, or something that is no text follows."""
        spoken = self.feed("\n")
        self._begin_block("")
        self._fence, self._is_code = "", False
        self._voice.breaks = 2
        return spoken + self.feed("")

    # Lines.

    def _begin_line(self, at: int) -> int:
        """A line whose kind is not known yet; where what was read of it ends."""
        buf = self._buf
        if buf[at] in " \t":
            return at + 1
        newline = buf.find("\n", at, at + LINE)
        line = buf[at : newline if newline >= 0 else at + LINE]
        if self._is_code:
            return self._code_line(line, at, newline)
        if line[:1] == "|":
            return self._row(line, at, newline)
        if block := _BLOCK.match(line):
            return at + self._open_block(block)
        if not line or (len(line) <= LINE_START and _BLOCK_BEGUN.fullmatch(line)):
            if newline < 0:
                raise _Undecided
            if self._is_structure(line):
                return newline + 1
        if self._is_owed and not line[0].islower():
            self._begin_block("")
        self._is_owed, self._in_line = False, True
        return at

    def _open_block(self, found: re.Match[str]) -> int:
        if found["heading"]:
            self._begin_block("heading")
            self._in_line = True
        elif not found["quote"]:
            self._begin_block("item")
            if found["number"]:
                self._voice.say(found["number"] + ".")
                self._voice.blank()
        return found.end()

    def _is_structure(self, line: str) -> bool:
        """Whether the line says nothing itself: a fence, a rule, or blank."""
        if fence := _FENCE.fullmatch(line):
            self._open_fence(*fence.groups())
        elif rule := _RULE.fullmatch(line):
            self._begin_block("")
            self._voice.breaks += rule[1] is None
        else:
            return False
        return True

    def _begin_block(self, kind: str) -> None:
        if self._is_owed:
            self._voice.end_sentence()
        self._is_owed, self._block = False, kind
        self._reset()

    def _open_fence(self, fence: str, language: str) -> None:
        self._begin_block("")
        self._voice.breaks = max(self._voice.breaks, 1)
        if self._fence and not language:  # of prose
            self._fence = ""
            return
        self._fence, self._is_code = fence, language.lower() not in PROSE
        if self._is_code:
            self._voice.say(LEFT_OUT.get(self._voice.script, LEFT_OUT["LATIN"]))
            self._voice.breaks = 1

    def _code_line(self, line: str, at: int, newline: int) -> int:
        if newline < 0:
            self._buf = self._buf[: at + LINE_START]
            raise _Undecided
        line = line[:LINE_START].strip("> \t")
        if len(line) >= len(self._fence) and not line.strip(self._fence[0]):
            self._fence, self._is_code = "", False
        return newline + 1

    def _row(self, line: str, at: int, newline: int) -> int:
        """A row of a table, or a line that begins like one."""
        if newline < 0 and len(line) < LINE:
            raise _Undecided
        self._begin_block("")
        row = line.rstrip()
        if newline < 0 or not _ROW.fullmatch(row):
            self._in_line = True
            return at
        if not _DELIMITERS.fullmatch(row):
            self._say_marks(", ".join(filter(None, map(str.strip, _CELLS.split(row)))))
            self._reset()
            self._voice.end_sentence()
            self._voice.breaks += 1
        return newline + 1

    # Marks inside lines.

    def _reset(self) -> None:
        """A new block: no emphasis and no code goes on in it."""
        self._before = "\n"  # the character before the mark
        self._ticks = 0  # how many backticks opened the code
        self._open = dict.fromkeys("*_~", 0)
        self._is_strong_line = False

    def _say_marks(self, text: str) -> None:
        at, buf = 0, text + "\n"
        while at < len(text):
            at = self._mark(buf, at)

    def _mark(self, buf: str, at: int) -> int:
        """The mark or the text that stands here; where it ends."""
        if run := _UNMARKED.match(buf, at):
            self._voice.say(run[0])
            self._before = run[0][-1]
            return run.end()
        char, end = buf[at], at
        if char == "\n":
            return self._end_line(at)
        if char == "`" or (char in "*_~" and not self._ticks):
            return self._run(buf, at)
        if not self._ticks:
            if char == "\\":
                if at + 1 == len(buf):
                    raise _Undecided
                end = at = at + (buf[at + 1] in ESCAPED)
            elif char in "![":
                end = self._link(buf, at)
            elif char == "<" or (char in "hw" and not _is_word(self._before)):
                end = self._address(buf, at)
        if end == at:
            self._plain(buf[at])
            end = at + 1
        return end

    def _plain(self, char: str) -> None:
        is_emoji = _EMOJI.match(char) or (char == JOINER and _EMOJI.match(self._before))
        if is_emoji or char in " \t":
            self._voice.blank(left_out=bool(is_emoji))
        else:
            self._voice.say(char)
        self._before = char

    def _end_line(self, at: int) -> int:
        self._before = "\n"
        if self._block == "heading" or self._voice.is_title:
            self._voice.end_sentence()
        self._is_owed, self._in_line = self._block == "item", False
        self._voice.breaks += 1
        return at + 1

    def _run(self, buf: str, at: int) -> int:
        run = _RUN.match(buf, at)
        assert run is not None
        if run.end() == len(buf):
            raise _Undecided
        if run[1] == "`" and self._ticks in (0, len(run[0])):
            self._ticks = len(run[0]) - self._ticks
        elif run[1] == "`" or not self._is_emphasis(run[0], buf[run.end()]):
            for each in run[0]:
                self._plain(each)
        self._before = run[1]
        return run.end()

    def _is_emphasis(self, run: str, behind: str) -> bool:
        kind, size, before = run[0], len(run), self._before
        if size > 3 or (kind == "~" and size != 2) or (before.isdigit() and behind.isdigit()):
            return False
        if self._open[kind] >= size and not before.isspace() and not (kind == "_" and _is_word(behind)):
            self._open[kind] -= size
            self._voice.is_title = self._is_strong_line and not self._open[kind]
            return True
        if behind.isspace() or _is_word(before):
            return False
        self._open[kind] += size
        at_line_start = self._voice.breaks or not self._voice.begun
        self._is_strong_line = bool(at_line_start) and kind == "*" and size > 1
        return True

    def _address(self, buf: str, at: int) -> int:
        """Of an address its host is said. Where it ends; `at` if there is none."""
        for name in ADDRESSES + BREAKS:
            if len(buf) - at < len(name) and name.startswith(buf[at:]):
                raise _Undecided
            if name in BREAKS and buf.startswith(name, at):
                self._voice.breaks = max(self._voice.breaks, 1)
                return at + len(name)
        found = _ADDRESS.match(buf, at)
        if found is None:
            return at
        end = min(found.end(), at + LINK)
        if end == len(buf):
            raise _Undecided
        address = buf[at:end].rstrip(".,;:!?*_~'")
        host = _HOST.match(address)
        self._voice.say(host[1] if host else address)
        self._before = address[-1]
        return at + len(address) + (buf[at] == "<" and buf.startswith(">", at + len(address)))

    def _link(self, buf: str, at: int) -> int:
        """Speak the text of a link and leave its address out; returns the end of the link, or `at` if no link begins there."""
        found = _LINK.match(buf, at)
        if found is None and len(buf) - at < LINK and _LINK_BEGUN.fullmatch(buf, at):
            raise _Undecided
        if found is None or found.end() - at > LINK or _is_word(self._before):
            return at
        self._say_marks(found[1])
        self._before = ")"
        return found.end()
