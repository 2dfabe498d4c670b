"""Model cards: how a folder was made, from its manifest, and how it behaves, from a gate report about that folder.

The text is `card.md.jinja`, in which every value is escaped.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import PackageLoader
from markupsafe import Markup

from gates.artefact.artefact import Artefact
from gates.judge.formatting import plural, title
from gates.report.checks import artefact as must_be_about
from gates.report.page import code, environment, escape, fence, markdown
from gates.report.statement import Statement

SILENT: Final = "--enable-prompt-tokens-details"


@dataclass(frozen=True, slots=True)
class GateReport:
    """A report that was read. digest: of its bytes. signers: the trusted keys that signed it; empty if no key was
    given."""

    statement: Statement
    digest: str
    signers: tuple[str, ...] = ()


def card(artefact: Artefact, judged: GateReport | None = None) -> str:
    """The card as Markdown. Raises ReportError if the report is of another folder."""
    found = ""
    if judged:
        must_be_about(judged.statement, artefact.root)
        found = markdown(judged.statement, statement_digest=judged.digest).replace("## ", "### ", 1).rstrip()
    made = environment(finalize=_escaped, autoescape=False).overlay(
        loader=PackageLoader("quantizer.checkpoint", "")
    )
    made.globals |= {helper.__name__: helper for helper in (plural, title, code, fence)}
    made.globals |= {"plain": Markup, "leaves": _leaves, "values": _values, "SILENT": SILENT}
    file = next((entry.path for entry in artefact.files if entry.path.endswith(".gguf")), "FILE.gguf")
    template = made.get_template("card.md.jinja")
    return template.render(artefact=artefact, judged=judged, found=Markup(found), gguf=file)


def _escaped(value: Any) -> Any:
    return value if isinstance(value, Markup) else escape(str(value))


def _values(recipe: Mapping[str, Any]) -> str:
    """A recipe's values as JSON; empty if it has none."""
    left = {k: v for k, v in recipe.items() if k not in ("name", "description", "outcome")}
    return json.dumps(left, indent=2, ensure_ascii=False) if left else ""


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested mappings, each with its path. An empty mapping has none."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{path}, {key}" if path else str(key))
    else:
        yield path, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
