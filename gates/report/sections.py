"""The page's first sight: the verdict, a line for each gate, every rule, and the speed. Pure."""

from __future__ import annotations

from typing import Final

from gates.contracts.verdict import GateResult
from gates.report.figures import kept_limits, summary, verdict_bar
from gates.report.html import NOTHING, Html, el, join
from gates.report.parts import chip, gate_chip, heading
from gates.report.statement import CANDIDATE, Distribution, Pinned, Statement
from gates.report.words import (
    MARKS,
    RULES,
    bound,
    gate_names,
    glance,
    headline,
    is_rate,
    reasons,
    required,
    sentence,
    side_by_side,
    title,
)

# ---------------------------------------------------------------------------------------- verdict


def verdict(statement: Statement) -> Html:
    """The verdict in one sentence, the sentences that decided, and who was compared."""
    decided = reasons(statement)
    word = f"{MARKS[statement.verdict]} {statement.verdict.value}"
    return join((
        el(
            "section",
            el("p", word, class_="word"),
            el("h1", headline(statement)),
            el("ul", join(el("li", el("b", gate, ": ") if gate else None, words) for gate, words in decided)) if decided else None,
            class_=f"card verdict {statement.verdict.value}",
        ),
        _facts(statement),
    ))  # fmt: skip


def _facts(statement: Statement) -> Html:
    ours, theirs, made = statement.candidate, statement.baseline, statement.created
    facts = (
        ("Candidate", ours.model.name, ours.model.format),
        ("Baseline", theirs.model.name, theirs.model.format),
        ("Engine", ours.engine.name, ours.engine.build),
        ("Suite and policy", _pinned(statement.suite), _pinned(statement.policy)),
        ("Samples", f"{len(statement.samples.lines):,}", None),
        ("Made", made[:10], f"{made[11:16]} UTC"),
    )
    cells = (
        el("div", el("dt", name), el("dd", value, el("div", note, class_="soft small") if note else None))
        for name, value, note in facts
    )
    return el("dl", join(cells), class_="facts")


def _pinned(what: Pinned) -> str:
    return what.name if what.version is None else f"{what.name} v{what.version}"


# ------------------------------------------------------------------------------------------ gates


def overview(statement: Statement) -> Html:
    """A line for each gate."""
    head = el("tr", join(el("th", name) for name in ("Gate", "Candidate", "Baseline", "Required", "Verdict")))
    rows = [
        el(
            "tr",
            el("td", el("a", title(name), href=f"#gate-{number}")),
            *(el("td", value) for value in glance(statement, name)),
            el("td", gate_chip(statement, name)),
        )
        for number, name in enumerate(gate_names(statement))
    ]
    table = el("table", el("thead", head), el("tbody", join(rows)), class_="glance")
    return el("div", table, class_="card overview")


_COLUMNS: Final = ("Rule", "Candidate", "Baseline", "Required", "Interval and limit", "")


def gates(statement: Statement) -> Html:
    """Every rule of every gate, with its interval drawn against its limit."""
    lead = "A bar spans what the true value may be; the dashed line is the limit, and the shaded side is allowed."
    head = el("div", join(el("span", name) for name in _COLUMNS), class_="rule head", aria_hidden="true")
    names = enumerate(gate_names(statement))
    return join((heading("Gates", lead), head, *(_gate(statement, name, number) for number, name in names)))


def _gate(statement: Statement, name: str, number: int) -> Html:
    rules = [gate for gate in statement.decision.gates if gate.gate == name]
    header = el(
        "header",
        el("h3", title(name)),
        el("code", name),
        el("span", ", ".join(dict.fromkeys(gate.tier for gate in rules)), class_="soft small"),
        gate_chip(statement, name),
    )
    shown = join(_rule(statement, gate) for gate in rules)
    return el("section", header, shown, class_="card gate", id=f"gate-{number}")


def _rule(statement: Statement, gate: GateResult) -> Html:
    ours, theirs = side_by_side(statement, gate)
    return el(
        "div",
        el("span", RULES[gate.rule], class_="name"),
        _labelled("candidate", ours, small=bound(gate)),
        _labelled("baseline", theirs, drop=theirs == "–"),
        _labelled("required", required(gate), drop=not required(gate)),
        el("span", verdict_bar(gate), class_=f"draw {gate.verdict.value}"),
        el("span", chip(gate.verdict, decides=gate.tier != "advisory"), class_="side"),
        el("p", sentence(gate.sentence), class_="words"),
        *(el("p", f"! {sentence(alarm)}", class_="alarm") for alarm in gate.alarms),
        class_="rule",
    )


def _labelled(label: str, value: str, small: str = "", drop: bool = False) -> Html:
    """A cell that carries its column's name where the columns are stacked."""
    note = el("span", small, class_="soft small", style="display:block") if small else None
    return el("span", el("span", label, class_="tag"), value, note, class_="drop" if drop else None)


# ------------------------------------------------------------------------------------------ speed


def speed(statement: Statement) -> Html:
    """The distributions of time and speed, candidate against baseline; nothing if none was measured."""
    metrics = dict.fromkeys(timing.gate for timing in statement.distributions)
    plots = [_speed_plot(statement, metric) for metric in metrics]
    if not plots:
        return NOTHING
    lead = "For every limit there could be, the share of replies that keep it: higher is better."
    notes = (
        el("ul", join(el("li", said) for said in statement.speed), class_="small")
        if statement.speed
        else NOTHING
    )
    return join((heading("Speed", lead), el("div", join(plots), class_="plots"), notes))


def _speed_plot(statement: Statement, metric: str) -> Html:
    timings = [timing for timing in statement.distributions if timing.gate == metric and timing.points]
    rules = [
        g for g in statement.decision.gates if g.gate.partition("[")[0] == metric and g.rule == "latency"
    ]
    limit = next((g.limit for g in rules if g.limit is not None), None)
    if not timings:
        return el(
            "figure", el("h3", title(metric)), el("p", "Nothing was measured.", class_="soft"), class_="card"
        )
    keys = [_key(timing) for timing in timings]
    if limit is not None:
        words = f"limit: {'at least' if is_rate(metric) else 'at most'} {limit:g} {timings[0].unit}"
        keys.append(el("span", words, class_="key to"))
    return el(
        "figure",
        el("h3", title(metric)),
        kept_limits(timings, limit, at_least=is_rate(metric)),
        el("figcaption", join(keys)),
        class_="card",
    )


def _key(timing: Distribution) -> Html:
    return el("span", summary(timing), class_="key" if timing.arm == CANDIDATE else "key baseline")
