"""Pieces that the sections of the page share. Pure."""

from __future__ import annotations

from gates.contracts.verdict import Verdict
from gates.report.html import Html, el, join
from gates.report.statement import Statement
from gates.report.words import MARKS, gate_verdict


def chip(verdict: Verdict, *, decides: bool = True) -> Html:
    """A verdict as a mark and a word, in its colour; one that does not decide has none."""
    colour = verdict.value if decides else "plain"
    return el("span", f"{MARKS[verdict]} ", el("span", verdict.value, class_="w"), class_=f"chip {colour}")


def gate_chip(statement: Statement, name: str) -> Html:
    """The verdict on a gate."""
    found, decides = gate_verdict(statement, name)
    return chip(found, decides=decides)


def heading(name: str, lead: str) -> Html:
    return join((el("h2", name), el("p", lead, class_="lead")))


def folded(line: str, body: Html) -> Html:
    """A body behind a line; it opens without a script."""
    return el("details", el("summary", line), body, class_="more")
