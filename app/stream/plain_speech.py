"""Markdown in, sentences for a voice out: `feed` and `close`, the same on any split of the text.

Each line is known by its first characters: these are held, and of a table or a link's definition the line. What follows
goes through one rule for each mark (emphasis, code, links, addresses), which holds a mark until the character behind
it; a link is held to its end, at most to the end of its line. All other text passes at once, and nothing that has
gone out is looked at again.
"""

import re
import unicodedata
from itertools import zip_longest

LEFT_OUT = {
    "LATIN": ("(A code example is left out.)", "(A code example in {} is left out.)"),
    "CJK": ("（此处省略一段代码。）", "（此处省略一段{}代码。）"),
    "HIRAGANA": ("（コード例は省略します。）", "（{}のコード例は省略します。）"),
    "KATAKANA": ("（コード例は省略します。）", "（{}のコード例は省略します。）"),
    "HANGUL": ("(코드 예제는 생략합니다.)", "({} 코드 예제는 생략합니다.)"),
    "CYRILLIC": ("(Пример кода пропущен.)", "(Пример кода на {} пропущен.)"),
    "ARABIC": ("(حُذف مثال برمجي.)", "(حُذف مثال برمجي بلغة {}.)"),
    "DEVANAGARI": ("(कोड का उदाहरण छोड़ा गया है।)", "({} कोड का उदाहरण छोड़ा गया है।)"),
    "KANNADA": ("(ಕೋಡ್ ಉದಾಹರಣೆಯನ್ನು ಬಿಡಲಾಗಿದೆ.)", "({} ಕೋಡ್ ಉದಾಹರಣೆಯನ್ನು ಬಿಡಲಾಗಿದೆ.)"),
}
"""What is said in place of a code block, by the script of the text before it: of an unknown language, and of a known one."""

FULL_STOPS = {"CJK": "。", "HIRAGANA": "。", "KATAKANA": "。", "DEVANAGARI": "।", "BENGALI": "।"}
"""What ends a sentence, by the script of its last letter; `.` otherwise."""

_NAMES = """Bash: bash sh shell; C: c; C#: c# cs csharp; C++: c++ cpp; CSS: css; Dart: dart; Go: go golang; Haskell: haskell hs;
HTML: html; Java: java; JavaScript: javascript js jsx; JSON: json jsonc; Kotlin: kotlin kt; LaTeX: latex tex; Lua: lua; Perl: perl;
PHP: php; PowerShell: powershell ps1; Python: python python3 py; R: r; Ruby: ruby rb; Rust: rust rs; Scala: scala; SQL: sql;
Swift: swift; TOML: toml; TypeScript: typescript ts tsx; XML: xml; YAML: yaml yml"""
LANGUAGES = {
    tag: name for name, tags in (row.split(": ") for row in re.split(r";\s", _NAMES)) for tag in tags.split()
}
PROSE = ("markdown", "md")  # a fence of these is read

LINE_START = 100  # characters by which the kind of a line is known: a longer beginning is text
LINE = 4096  # characters of a line that is held whole: a row of a table, the definition of a link
LINK = 2048  # characters of a link or an address

BULLETS = "-*+•◦‣▪●○"
SENTENCE_ENDS = ".!?…:;,。！？：；，、।॥؟؛۔"
CLOSING = "\"'”’»)]）」』"
BOXES = ("[ ] ", "[x] ", "[X] ")
MARKS = "*_~\\![<"
ESCAPED = "*_`#~|>$%&"
ADDRESSES = ("http://", "https://", "www.", "<http://", "<https://")
BREAKS = ("<br>", "<br/>", "<br />")
JOINER = "\u200d"
EMOJI = (
    "\U0001f000-\U0001fbff\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u231a\u231b\u23e9-\u23f3"
    "\ufe0f\u20e3\U000e0020-\U000e007f"
)

_EMOJI = re.compile(f"[{EMOJI}]")
_UNMARKED = re.compile(rf"(?:(?<=[a-zA-Z0-9])[hw]|[^hw\n\r \t`*_~\\\[!<{JOINER}{EMOJI}])+")
_FENCE = re.compile(r"(`{3,}|~{3,})\s*([\w+#.-]*)(?:\s+\w+=[^`]*|\s*\{[^`]*)?\s*")
_NUMBER = re.compile(r"[0-9]{1,9}[.)]?")
_DELIMITERS = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
_CELLS = re.compile(r"(?<!\\)\|")
_DEFINITION = re.compile(
    r"\[\^[^\]]+\]:.*|\[[^\]]+\]:\s*<?(?:\w+://|mailto:|www\.|[/#.])\S*(?:\s+[\"'(].*)?\s*"
)
_ADDRESS_END = re.compile(r"[\s<>\"`|\]]|[^\x00-~]")
_HOST = re.compile(r"<?(?:https?://)?(?:[^/@\s]*@)?(?:www\.)?([^/?#:\s]+)")


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
    def at_line_start(self) -> bool:
        return bool(self.breaks) or not self.begun

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


class _Marks:
    """The marks inside lines: what is emphasized, linked or code is said without them."""

    def __init__(self, voice: _Voice) -> None:
        self._voice = voice
        self.mark = ""  # what is held
        self._text_end = 0  # where the text of a link ended in it
        self.reset()

    def reset(self) -> None:
        """A new block: no emphasis and no code goes on in it."""
        self.before = "\n"  # the character before the mark
        self._code = 0  # how many backticks opened it
        self._open = dict.fromkeys("*_~", 0)
        self._is_strong_line = False

    def end(self) -> None:
        """The line ends: what is held is decided."""
        if self.mark:
            self._go_on("\n")
        self.before = "\n"

    def take(self, char: str) -> None:
        if self.mark:
            self._go_on(char)
        elif char == "`" or not self._code and (char in MARKS or char in "hw" and not _is_word(self.before)):
            self.mark = char
        elif char != "\n":
            self._plain(char)

    def _plain(self, char: str) -> None:
        is_emoji = _EMOJI.match(char) or char == JOINER and _EMOJI.match(self.before)
        if is_emoji or char in " \t":
            self._voice.blank(left_out=bool(is_emoji))
        else:
            self._voice.say(char)
        self.before = char

    def _go_on(self, char: str) -> None:
        held = self.mark + char
        if held[0] in "`*_~":
            self._run(char)
        elif held[0] in "hw<":
            self._address(char)
        elif held[0] == "[" or held.startswith("!["):
            self._link(char)
        elif held[0] == "\\" and char in ESCAPED:
            self.mark = ""
            self._plain(char)
        else:
            self._refuse(char)

    def _refuse(self, char: str) -> None:
        """The mark was none: its first character is text, and the rest is read anew."""
        held, self.mark, self._text_end = self.mark, "", 0
        self._plain(held[0])
        for each in held[1:] + char:
            self.take(each)

    def _run(self, char: str) -> None:
        if char == self.mark[0] and len(self.mark) < LINE_START:
            self.mark += char
            return
        run, self.mark = self.mark, ""
        if not (self._is_code_mark(run) if run[0] == "`" else self._is_emphasis(run, char)):
            for each in run:
                self._plain(each)
        self.before = run[0]
        self.take(char)

    def _is_code_mark(self, run: str) -> bool:
        if self._code not in (0, len(run)):
            return False
        self._code = len(run) - self._code
        return True

    def _is_emphasis(self, run: str, behind: str) -> bool:
        kind, size = run[0], len(run)
        if size > 3 or kind == "~" and size != 2 or self.before.isdigit() and behind.isdigit():
            return False
        if self._open[kind] >= size and not self.before.isspace() and not (kind == "_" and _is_word(behind)):
            self._open[kind] -= size
            self._voice.is_title = self._is_strong_line and not self._open[kind]
            return True
        if behind.isspace() or _is_word(self.before):
            return False
        self._open[kind] += size
        self._is_strong_line = self._voice.at_line_start and kind == "*" and size > 1
        return True

    def _address(self, char: str) -> None:
        held = self.mark + char
        if held in BREAKS:
            self.mark, self._voice.breaks = "", max(self._voice.breaks, 1)
        elif any(name.startswith(held) for name in ADDRESSES + BREAKS):
            self.mark = held
        elif not self.mark.startswith(ADDRESSES):
            self._refuse(char)
        elif _ADDRESS_END.match(char) or char == ")" and "(" not in held or len(held) > LINK:
            address = self.mark.rstrip(".,;:!?*_~'")
            behind = self.mark[len(address) :] + ("" if char == ">" and address[0] == "<" else char)
            host, self.mark = _HOST.match(address), ""
            self._voice.say(host[1] if host else address)
            self.before = address[-1]
            for each in behind:
                self.take(each)
        else:
            self.mark = held

    def _link(self, char: str) -> None:
        behind = self.mark[self._text_end + 1 :] if self._text_end else ""
        if char == "\n" or len(self.mark) >= LINK or not self._may_be_link(char, behind):
            self._refuse(char)
            return
        self.mark += char
        if not self._text_end and char == "]":
            self._text_end = len(self.mark) - 1
            if self.mark.startswith("[^"):
                self.mark, self._text_end = "", 0
        elif behind[:1] + char in ("[]", "()") and behind.count("(") <= behind.count(")") + 1:
            text, self.mark, self._text_end = self.mark[: self._text_end].lstrip("!")[1:], "", 0
            for each in text:
                self.take(each)
            self.end()
            self.before = ")"

    def _may_be_link(self, char: str, behind: str) -> bool:
        """Not `x[i](y)`, `[1][2]`, or a bracket within a bracket."""
        if not self._text_end or behind:
            return char != "[" or self.mark == "!"
        is_named = sum(map(str.isalpha, self.mark)) > 1
        return not _is_word(self.before) and (char == "(" or char == "[" and is_named)


MAX_NAMES = 120
"""Characters of a table's column names that are said again in each row."""


class PlainSpeech:
    """The text of one reply. What is fed after `close` begins a new paragraph."""

    def __init__(self) -> None:
        self._voice = _Voice()
        self._marks = _Marks(self._voice)
        self._mode = PlainSpeech._start  # no bound method: it would refer back to this object
        self._held = ""  # the line, as far as it is held
        self._block = ""  # "item", "heading", or text
        self._is_owed = False  # an item's line has ended: a full stop, if it does not go on
        self._fence = ""  # what opened the fence that is open
        self._header = ""  # a line that heads a table, if one of dashes follows
        self._columns: list[str] = []

    def feed(self, text: str) -> str:
        """What may be said by now."""
        at = 0
        while at < len(text):
            if (
                self._mode is PlainSpeech._text
                and not self._marks.mark
                and (run := _UNMARKED.match(text, at))
            ):
                self._voice.say(run[0])
                self._marks.before = run[0][-1]
                at = run.end()
            else:
                if text[at] != "\r":
                    self._mode(self, text[at])
                at += 1
        return self._spoken()

    def close(self) -> str:
        """The rest: the reply is over, or something that is no text follows."""
        self._mode(self, "\n")
        self._begin_block("")
        self._mode, self._fence = PlainSpeech._start, ""
        self._voice.breaks = 2
        return self._spoken()

    def _spoken(self) -> str:
        spoken = "".join(self._voice.out)
        self._voice.out.clear()
        return spoken

    def _begin_block(self, kind: str) -> None:
        if self._is_owed:
            self._voice.end_sentence()
        header, self._header = self._header, ""
        self._is_owed, self._block, self._columns = False, kind, []
        self._marks.reset()
        if header:
            self._say_line(header)

    def _say_line(self, line: str) -> None:
        for char in line:
            self._marks.take(char)
        self._marks.end()
        self._voice.breaks += 1

    def _start(self, char: str) -> None:
        """The beginning of a line, until its kind is known."""
        if char == "\n":
            line, self._held = self._held, ""
            self._short_line(line)
        elif self._held or char not in " \t":
            self._held += char
            self._know_line()

    def _know_line(self) -> None:
        head = self._held
        first, run = head[0], len(head) - len(head.lstrip(head[0]))
        behind = head[run : run + 1]
        if head in BOXES and self._block == "item" and not self._is_owed:
            self._held = ""
        elif first == "|":
            self._mode = PlainSpeech._row
        elif first == ">" and behind.isspace() or head == ">>":
            self._held = head[run:].lstrip() if behind else ">"
        elif first == "#" and run <= 6 and behind.isspace():
            self._open_text("heading")
        elif first in BULLETS and run == 1 and behind.isspace():
            self._open_item("")
        elif head[-1].isspace() and _NUMBER.fullmatch(head[:-1]) and not head[-2].isdigit():
            self._open_item(head[:-2] + ".")
        elif not self._may_be_more(head, run):
            self._open_text("")

    def _may_be_more(self, head: str, run: int) -> bool:
        """Whether the line may yet be something else than text."""
        first = head[0]
        if first == "[" and (closed := head.find("]")) > 0:
            return head[closed + 1 : closed + 2] in ("", ":") and len(head) < LINE
        if len(head) > LINE_START or first == "[":
            return len(head) <= LINE_START
        if first in "`~":
            return run == len(head) or run >= 3 and "`" not in head[run:]
        if first in "#>":
            return run == len(head) and run <= 6
        if first in BULLETS + "_=":
            return run == len(head) or run >= 3 and head[run:].isspace()
        return bool(_NUMBER.fullmatch(head))

    def _open_item(self, number: str) -> None:
        self._begin_block("item")
        self._held = ""
        if number:
            self._voice.say(number)
            self._voice.blank()

    def _open_text(self, kind: str) -> None:
        head, self._held = self._held, ""
        goes_on = not kind and not self._header and not self._columns
        if kind or not goes_on or self._is_owed and not head[0].islower():
            self._begin_block(kind)
        self._is_owed = False
        self._mode = PlainSpeech._text
        for char in head.lstrip("# ") if kind else head:
            self._marks.take(char)

    def _short_line(self, line: str) -> None:
        """A line that ended before its kind was known."""
        if fence := _FENCE.fullmatch(line):
            self._open_fence(*fence.groups())
        elif not line.strip("#") or line in BULLETS or _DEFINITION.fullmatch(line):
            self._begin_block("")
            self._voice.breaks += 1
        elif line[0] in "-*_=" and len(line) > 2 and not line.strip(line[0] + " "):
            self._begin_block("")
        else:
            self._held = line
            self._open_text("")
            self._text("\n")

    def _text(self, char: str) -> None:
        if char != "\n":
            self._marks.take(char)
            return
        self._marks.end()
        if self._block == "heading" or self._voice.is_title:
            self._voice.end_sentence()
        self._is_owed = self._block == "item"
        self._voice.breaks += 1
        self._mode = PlainSpeech._start

    def _open_fence(self, fence: str, language: str) -> None:
        self._begin_block("")
        self._voice.breaks = max(self._voice.breaks, 1)
        if self._fence and not language:  # of prose
            self._fence = ""
        elif language.lower() in PROSE:
            self._fence = fence
        else:
            self._fence, self._mode = fence, PlainSpeech._code
            unnamed, named = LEFT_OUT.get(self._voice.script, LEFT_OUT["LATIN"])
            name = LANGUAGES.get(language.lower())
            self._voice.say(named.format(name) if name else unnamed)
            self._voice.breaks = 1

    def _code(self, char: str) -> None:
        if char != "\n":
            self._held = (self._held + char)[:LINE_START]
            return
        line, self._held = self._held.strip("> \t"), ""
        if len(line) >= len(self._fence) and not line.strip(self._fence[0]):
            self._fence, self._mode = "", PlainSpeech._start

    def _row(self, char: str) -> None:
        """A row of a table, or a line that begins like one."""
        if char != "\n" and len(self._held) < LINE:
            self._held += char
            return
        held, self._held, self._mode = self._held, "", PlainSpeech._start
        row = held.rstrip()
        if char != "\n" or len(row) < 2 or row[-1] != "|":
            self._begin_block("")
            self._mode = PlainSpeech._text
            for each in held + char:
                self._mode(self, each)
        elif self._columns:
            self._say_row(_CELLS.split(row[1:-1]))
        elif self._header and _DELIMITERS.fullmatch(row):
            names, self._header = [cell.strip() for cell in _CELLS.split(self._header[1:-1])], ""
            # Names that are longer than a row's own words would multiply the text.
            self._columns = names if sum(map(len, names)) <= MAX_NAMES else [""] * len(names)
        else:
            self._begin_block("")
            self._header = row

    def _say_row(self, cells: list[str]) -> None:
        pairs = zip_longest(self._columns, map(str.strip, cells[: len(self._columns)]), fillvalue="")
        self._marks.reset()
        self._say_line(", ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell))
        self._voice.end_sentence()
