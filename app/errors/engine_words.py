"""Cleans an engine's message about a bad request for the caller. Pure. Recognized by their form, and cut, are

* a line of a stack trace, from its mark on, and the indented lines below it. Text at the left margin before and after it
  stays: there Python says what was wrong.
* a path from the root of a disk with two parts or more, as `[path]`. Not a path of an API (`/v1/…`), a place in a
  schema (`/properties/…`, `#/$defs/…`), a media type, a URL, a closing tag.
* non-printing characters, and everything after MAX_WORDS characters.
"""

import re

MAX_WORDS = 500  # maximum length in characters
PATH = "[path]"

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # terminal escape sequences
_TRACE = re.compile(
    r"""
      (?:\+\ Exception\ Group\ )?Traceback\ \(              # Python
    | \(most\ recent\ call\ (?:first|last)\)                 # Python, PyTorch in C++
    | \bFile\ \\?["'<][^"'>\n]{0,1000}["'>],?\ line\ \d      # a frame of Python, alone
    | \bstack\ ?(?:trace|backtrace)\s?:                      # C++, Rust
    | \bframe\ \#\d                                          # PyTorch in C++
    | \#\d+:?\ {1,3}0x[0-9a-f]                               # gdb
    | \([^\s(]{0,300}\+0x[0-9a-f]+\)                         # glibc: file(function+offset)
    | ^[\s|+-]*[\u2500-\u257f]                               # a box around a trace: Python's rich
    | ^\s*(?:During\ handling\ of\ the\ above|The\ above\ exception\ was)                      # between two of Python's
    """,
    re.VERBOSE,
)
_PART = r"""[^\s/"'`<>|\\]+"""
_OF_THE_API = r"(?:v\d+|properties|definitions|\$defs)(?![\w.-])"
_PATH = re.compile(
    rf"""
      (?<=(?P<quote>["'`]))/+(?!{_OF_THE_API}){_PART}/[^"'`]{{0,1000}}(?=(?P=quote))   # quoted: with its spaces
    | (?: (?<![\w./\\#)\]~]) | (?<=(?<!\w)-[A-Z]) | (?<=\\[nrt]) )      # not in a word; after -I and an escaped new line
      (?: /(?!/) | (?<!:)//+ ) (?!{_OF_THE_API}) {_PART}/+{_PART}[^\s"'`<>|\\]*
    | \b[A-Za-z][A-Za-z0-9+.-]{{1,20}}:///+[^\s"'`<>]+             # file:///…, ipc:///…
    | \bfile:/[^\s"'`<>]+
    | (?<![\w/])[A-Z]:[\\/]+(?:[^\s\\/"'`<>]+[\\/]+)+[^\s\\/"'`<>]*      # Windows
    """,
    re.VERBOSE,
)
_A_WORD = re.compile(r"[^\W\d_]{2}")


def fit_for_callers(message: str) -> str:
    """The message on one line, without what a caller must not see; "" if no word is left. The work is linear in its length."""
    line = " ".join(" ".join(_untraced(_printable(message))).split())
    if trace := _TRACE.search(line):  # one that the join of two lines made
        line = line[: trace.start()]
    words = _PATH.sub(_without_path, line)[:MAX_WORDS].strip()
    return words if _A_WORD.search(words.replace(PATH, "")) else ""


def _printable(text: str) -> str:
    """Keep white space and remove other non-printing characters, so that they cannot hide a path."""
    return "".join(c for c in _ESCAPES.sub("", text) if c.isprintable() or c.isspace())


def _untraced(text: str) -> list[str]:
    """The lines, or their beginnings, that do not belong to a stack trace."""
    kept, in_trace = [], False
    for line in text.splitlines():
        if in_trace and (not line or line[0].isspace()):
            continue
        trace = _TRACE.search(line)
        in_trace = trace is not None
        kept.append(line[: trace.start()] if trace else line)
    return kept


def _without_path(found: re.Match[str]) -> str:
    """The replacement of a path, with the punctuation after it."""
    path = found[0]
    return PATH + path[len(path.rstrip(".,:;!?)]}")) :]
