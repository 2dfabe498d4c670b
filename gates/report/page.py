"""The report as one HTML page: `report.html.jinja`, with every value escaped. A view only; `report.json` counts."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from gates.contracts.sample import BASELINE, CANDIDATE
from gates.judge.formatting import title
from gates.report import charts, labels, replies
from gates.report.document import SAMPLES_FILE
from gates.report.statement import Pinned, Statement
from gates.report.texts import TextLookup, no_texts, shorten, visible

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
MARKS: Final = {verdict.value: mark for verdict, mark in labels.MARKS.items()}
OUTCOME_CLASSES: Final = {"ok": "pass", "bad": "fail", "lost": "inconclusive"}


def page(
    statement: Statement,
    texts: TextLookup = no_texts,
    *,
    statement_digest: str = "",
    signers: tuple[str, ...] = (),
) -> str:
    """The page as text. `statement_digest` and `signers` (key ids) say which report.json it shows."""
    return _template().render(
        statement=statement,
        texts=texts,
        statement_digest=statement_digest,
        signers=signers,
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
def _template() -> Template:
    made = environment(finalize=_shown, autoescape=True)
    helpers = (title, shorten, pairs, versioned)
    made.globals |= {helper.__name__: helper for helper in helpers}
    made.globals |= {
        "charts": charts, "labels": labels, "replies": replies, "POLICY": POLICY, "MARKS": MARKS,
        "OUTCOME_CLASSES": OUTCOME_CLASSES, "SAMPLES_FILE": SAMPLES_FILE, "CANDIDATE": CANDIDATE, "BASELINE": BASELINE,
    }  # fmt: skip
    return made.get_template("report.html.jinja")


def _shown(value: Any) -> Any:
    """Every value of the template before it is escaped: hidden characters are made visible, and coordinates,
    of which a page has thousands, get one decimal."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def versioned(what: Pinned) -> str:
    return what.name if what.version is None else f"{what.name} v{what.version}"


def pairs(table: Mapping[str, str]) -> str:
    """Names and values on one line."""
    return ", ".join(f"{name} {value}" for name, value in sorted(table.items()))
