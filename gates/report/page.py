"""The report for people: one HTML page, and Markdown short enough for a pull request. Views only; `report.json` counts.

The templates escape every value. In Markdown, foreign text stands in fences and code spans that are longer than any run of backticks in
it, or is escaped. Control characters, and marks that make one text look like another, are written out.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from gates.contracts.sample import BASELINE, CANDIDATE
from gates.judge.formatting import title
from gates.report import labels
from gates.report.labels import Texts
from gates.report.statement import SAMPLES_FILE, Pinned, Statement

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
_NO_TEXTS: Final[Texts] = MappingProxyType({})
OUTCOME_CLASSES: Final = {"ok": "pass", "bad": "fail", "lost": "inconclusive"}


def page(
    statement: Statement,
    texts: Texts = _NO_TEXTS,
    *,
    statement_digest: str = "",
    signers: tuple[str, ...] = (),
) -> str:
    """The page as text. `statement_digest` and `signers` (key ids) say which report.json it shows."""
    template = _template("report.html.jinja", _shown, autoescape=True)
    return template.render(
        statement=statement, texts=texts, statement_digest=statement_digest, signers=signers
    )


def environment(finalize: Callable[[Any], Any], autoescape: bool) -> Environment:
    """For templates of this folder: a name that is not defined is an error, and tags leave no lines."""
    return Environment(
        loader=PackageLoader("gates.report", ""),
        autoescape=autoescape,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _template(name: str, finalize: Callable[[Any], Any], autoescape: bool) -> Template:
    made = environment(finalize, autoescape)
    helpers = (title, shorten, pairs, versioned, code, fence)
    made.globals |= {helper.__name__: helper for helper in helpers}
    made.globals |= {
        "labels": labels, "POLICY": POLICY, "MARKS": labels.MARKS, "MAX_TEXT": MAX_TEXT,
        "OUTCOME_CLASSES": OUTCOME_CLASSES, "SAMPLES_FILE": SAMPLES_FILE, "CANDIDATE": CANDIDATE, "BASELINE": BASELINE,
    }  # fmt: skip
    return made.get_template(name)


def _shown(value: Any) -> Any:
    """Every value of the template before it is escaped: hidden characters are made visible."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_UNSAFE: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_KEPT: Final = frozenset(
    "\n\t\u200c\u200d"
)  # joiners are spelling in Indic scripts and emoji, and reorder nothing


def visible(text: str) -> str:
    """Every invisible or reordering character written as \\u{...}; line breaks and tabs are kept, CR LF becomes LF."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join(
        f"\\u{{{ord(c):x}}}" if c not in _KEPT and unicodedata.category(c) in _UNSAFE else c for c in text
    )


def shorten(text: str, most: int) -> str:
    """At most `most` characters, and how many more there were."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most:,} more characters in samples.jsonl)"


def versioned(what: Pinned) -> str:
    return what.name if what.version is None else f"{what.name} v{what.version}"


def pairs(table: Mapping[str, str]) -> str:
    """Names and values on one line."""
    return ", ".join(f"{name} {value}" for name, value in sorted(table.items()))


WORST: Final = 3  # gates for which a reply is quoted
MAX_TEXT: Final = 400  # characters of it

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#!|~&$])")
_BACKTICKS: Final = re.compile(r"`+")


def markdown(statement: Statement, texts: Texts = _NO_TEXTS, *, statement_digest: str = "") -> str:
    """The verdict, a line for each gate, the controls, and the worst reply of the first gates that did not pass."""
    found = labels.entries(statement)
    bad = [name for name in found if labels.gate_verdict(statement, name)[0].value != "pass"]
    quoted = [(name, found[name]) for name in bad[:WORST]]
    template = _template("report.md.jinja", _escaped, autoescape=False)
    return template.render(statement=statement, texts=texts, statement_digest=statement_digest, quoted=quoted)


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
