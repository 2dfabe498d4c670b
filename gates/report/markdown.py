"""The report as Markdown, short enough for a pull request: `report.md.jinja`, with every value escaped.

Foreign text stands in fences and code spans that are longer than any run of backticks in it, or is escaped.
"""

import re
from functools import cache
from typing import Any, Final

from jinja2 import Template
from markupsafe import Markup

from gates.contracts.sample import CANDIDATE
from gates.judge.formatting import title
from gates.report import labels, replies
from gates.report.page import environment
from gates.report.statement import Statement
from gates.report.texts import TextLookup, no_texts, shorten, visible

WORST: Final = 3  # gates for which a reply is quoted
MAX_TEXT: Final = 400  # characters of it

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#!|~&$])")
_BACKTICKS: Final = re.compile(r"`+")


def markdown(statement: Statement, texts: TextLookup = no_texts, *, statement_digest: str = "") -> str:
    """The verdict, a line for each gate, the controls, and the worst reply of the first gates that did not pass."""
    found = replies.entries(statement)
    bad = [name for name in found if labels.gate_verdict(statement, name)[0].value != "pass"]
    return _template().render(
        statement=statement,
        texts=texts,
        statement_digest=statement_digest,
        quoted=[(name, found[name]) for name in bad[:WORST]],
    )


@cache
def _template() -> Template:
    made = environment(finalize=_escaped, autoescape=False)
    for helper in (title, shorten, code, fence):
        made.globals[helper.__name__] = helper
    made.globals |= {"labels": labels, "replies": replies, "MARKS": labels.MARKS, "MAX_TEXT": MAX_TEXT, "CANDIDATE": CANDIDATE}  # fmt: skip
    return made.get_template("report.md.jinja")


def _escaped(value: Any) -> Any:
    """Every value of the template but code spans and fences."""
    return value if isinstance(value, Markup) else escape(str(value))


def escape(words: str) -> str:
    """Text on one line, with all Markdown syntax escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(words).split()))


def code(words: str) -> Markup:
    """A code span on one line, whatever backticks the text contains."""
    line = " ".join(visible(words).split())
    tick = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return Markup(f"{tick}{pad}{line}{pad}{tick}")


def fence(text: str) -> Markup:
    """A fenced block, whatever fences the text contains."""
    body = visible(text).rstrip("\n")
    line = "`" * max(3, _longest_run(body) + 1)
    return Markup(f"{line}text\n{body}\n{line}")


def _longest_run(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)
