"""The report as one HTML page that needs no other file. Pure.

The page loads no scripts, fonts or images; its Content-Security-Policy forbids them, in case escaping
should ever fail. It is a view only: `report.json` is what counts.
"""

from __future__ import annotations

from typing import Final

from gates.contracts.sample import BASELINE, CANDIDATE
from gates.contracts.verdict import GateResult, Outcome, Verdict
from gates.judge.formatting import title
from gates.report import replies
from gates.report.charts import limit_curves, operating_curve, summary, verdict_bar
from gates.report.document import SAMPLES_FILE
from gates.report.html import NOTHING, RAW, Html, el, join
from gates.report.labels import (
    BESIDE,
    BESIDE_COLUMNS,
    MARKS,
    RULES,
    beside_cells,
    beside_notes,
    gate_names,
    gate_verdict,
    headline,
    interval_bound,
    is_rate,
    overview_cells,
    reasons,
    required,
    sentence,
    side_by_side,
)
from gates.report.replies import ReplyEntry
from gates.report.statement import (
    ComparedArm,
    Distribution,
    Harness,
    ModelIdentity,
    Pinned,
    Statement,
)
from gates.report.stylesheet import STYLE
from gates.report.texts import TextLookup, no_texts, shorten

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


def page(
    statement: Statement,
    texts: TextLookup = no_texts,
    *,
    statement_digest: str = "",
    signers: tuple[str, ...] = (),
) -> str:
    """The page as text. `statement_digest` and `signers` (key ids) say which report.json it shows."""
    name = statement.candidate.model.name
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="referrer", content="no-referrer"),
        el("link", rel="icon", href="data:,"),
        el("title", f"{statement.verdict.value}: {name}"),
        el("style", RAW(STYLE)),
    )
    body = el(
        "main",
        verdict_section(statement),
        overview_section(statement),
        gates_section(statement),
        speed_section(statement),
        replies_section(statement, texts),
        beside_section(statement),
        controls_section(statement),
        curves_section(statement),
        binding_section(statement),
        footer(statement, statement_digest, signers),
    )
    return f"<!doctype html>\n{el('html', head, el('body', body), lang='en')}\n"


# ---------------------------------------------------------------------------------------- verdict


def verdict_section(statement: Statement) -> Html:
    """The verdict in one sentence, the reasons, and what was compared."""
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
        ("Suite and policy", _name_and_version(statement.suite), _name_and_version(statement.policy)),
        ("Samples", f"{len(statement.samples.lines):,}", None),
        ("Made", made[:10], f"{made[11:16]} UTC"),
    )
    cells = (
        el("div", el("dt", name), el("dd", value, el("div", note, class_="soft small") if note else None))
        for name, value, note in facts
    )
    return el("dl", join(cells), class_="facts")


def _name_and_version(what: Pinned) -> str:
    return what.name if what.version is None else f"{what.name} v{what.version}"


# ------------------------------------------------------------------------------------------ gates


def overview_section(statement: Statement) -> Html:
    """One line for each gate."""
    head = el("tr", join(el("th", name) for name in ("Gate", "Candidate", "Baseline", "Required", "Verdict")))
    rows = [
        el(
            "tr",
            el("td", el("a", title(name), href=f"#gate-{number}")),
            *(el("td", value) for value in overview_cells(statement, name)),
            el("td", gate_chip(statement, name)),
        )
        for number, name in enumerate(gate_names(statement))
    ]
    table = el("table", el("thead", head), el("tbody", join(rows)), class_="glance")
    return el("div", table, class_="card overview")


_COLUMNS: Final = ("Rule", "Candidate", "Baseline", "Required", "Interval and limit", "")


def gates_section(statement: Statement) -> Html:
    """Every rule of every gate, with its interval drawn against its limit."""
    lead = "A bar spans what the true value may be; the dashed line is the limit, and the shaded side is allowed."
    head = el("div", join(el("span", name) for name in _COLUMNS), class_="rule head", aria_hidden="true")
    names = enumerate(gate_names(statement))
    return join(
        (heading("Gates", lead), head, *(_gate_card(statement, name, number) for number, name in names))
    )


def _gate_card(statement: Statement, name: str, number: int) -> Html:
    rules = [gate for gate in statement.decision.gates if gate.gate == name]
    header = el(
        "header",
        el("h3", title(name)),
        el("code", name),
        el("span", ", ".join(dict.fromkeys(gate.tier for gate in rules)), class_="soft small"),
        gate_chip(statement, name),
    )
    shown = join(_rule_row(statement, gate) for gate in rules)
    return el("section", header, shown, class_="card gate", id=f"gate-{number}")


def _rule_row(statement: Statement, gate: GateResult) -> Html:
    ours, theirs = side_by_side(statement, gate)
    return el(
        "div",
        el("span", RULES[gate.rule], class_="name"),
        _labelled("candidate", ours, small=interval_bound(gate)),
        _labelled("baseline", theirs, drop=theirs == "–"),
        _labelled("required", required(gate), drop=not required(gate)),
        el("span", verdict_bar(gate), class_=f"draw {gate.verdict.value}"),
        el("span", chip(gate.verdict, decides=gate.tier != "advisory"), class_="side"),
        el("p", sentence(gate.sentence), class_="words"),
        *(el("p", f"! {sentence(alarm)}", class_="alarm") for alarm in gate.alarms),
        class_="rule",
    )


def _labelled(label: str, value: str, small: str = "", drop: bool = False) -> Html:
    """A cell with the name of its column, which is shown when columns are stacked on a narrow screen."""
    note = el("span", small, class_="soft small", style="display:block") if small else None
    return el("span", el("span", label, class_="tag"), value, note, class_="drop" if drop else None)


# ------------------------------------------------------------------------------------------ speed


def speed_section(statement: Statement) -> Html:
    """The distributions of times and rates, candidate against baseline; empty if none was measured."""
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
        limit_curves(timings, limit, at_least=is_rate(metric)),
        el("figcaption", join(keys)),
        class_="card",
    )


def _key(timing: Distribution) -> Html:
    return el("span", summary(timing), class_="key" if timing.arm == CANDIDATE else "key baseline")


# ---------------------------------------------------------------------------------------- replies


def replies_section(statement: Statement, texts: TextLookup) -> Html:
    """What failed and what flipped, by gate, side by side."""
    found = replies.entries(statement)
    if not found:
        words = "No reply of the candidate failed a gate, and none flipped."
        return heading("Replies", words)
    lead = "What failed, and what changed against the baseline: raw model text, as the engine gave it."
    return join(
        (heading("Replies", lead), *(_gate_replies(gate, cases, texts) for gate, cases in found.items()))
    )


def _gate_replies(gate: str, found: list[ReplyEntry], texts: TextLookup) -> Html:
    """The worst cases open, more of them folded away, and the rest by name."""
    shown, behind, rest = replies.split_for_display(found)
    header = el(
        "h3",
        f"{title(gate)} ",
        el("span", f"· {replies.count_by_kind(found)}", class_="soft"),
        class_="said-in",
    )
    cases = (_reply_card(entry, texts) for entry in shown)
    more = folded(f"{len(behind)} more with their texts", join(_reply_card(entry, texts) for entry in behind))
    names = el("p", ", ".join(f"{e.case} ({replies.KIND_LABELS[e.kind]})" for e in rest), class_="mono")
    return join((
        header,
        *cases,
        more if behind else None,
        folded(f"{len(rest)} more by name", names) if rest else None,
    ))  # fmt: skip


def _reply_card(entry: ReplyEntry, texts: TextLookup) -> Html:
    ours, theirs = texts(entry.case, CANDIDATE), texts(entry.case, BASELINE)
    known = ours or theirs
    prompt = shorten(known.prompt, replies.MAX_TEXT) if known else None
    pair = (
        _reply_column("candidate", entry.candidate, ours.reply if ours else None),
        _reply_column("baseline", entry.baseline, theirs.reply if theirs else None),
    )
    return el(
        "article",
        el(
            "header",
            el("code", entry.case),
            el("span", replies.KIND_LABELS[entry.kind], class_="chip plain"),
            el("span", "named", class_="chip plain") if entry.named else None,
        ),
        el("p", entry.why, class_="why small") if entry.why else None,
        el("p", prompt, class_="prompt", tabindex=0, dir="auto") if prompt else None,
        el("div", *pair, class_="pair")
        if known
        else el("p", "Its text is not beside this report.", class_="soft small"),
        class_="card case",
    )


_OUTCOMES: Final[dict[Outcome, Verdict]] = {
    "ok": Verdict.PASS,
    "bad": Verdict.FAIL,
    "lost": Verdict.INCONCLUSIVE,
}


def _reply_column(arm: str, outcome: Outcome | None, reply: str | None) -> Html:
    mark = el("span", outcome, class_=_OUTCOMES[outcome].value) if outcome else None
    if reply is None:
        body = el("p", "not there", class_="soft small")
    elif not reply:
        body = el("p", "(empty)", class_="soft small")
    else:
        # A scrolling text must be reachable by keyboard.
        body = el("pre", shorten(reply, replies.MAX_TEXT), tabindex=0, dir="auto")
    return el("div", el("div", el("span", arm), mark), body, class_="said")


# ----------------------------------------------------------------------------------------- beside


def beside_section(statement: Statement) -> Html:
    """What was asked beside the gates; empty if nothing was."""
    if not statement.beside:
        return NOTHING
    head = el("thead", el("tr", join(el("th", name) for name in BESIDE_COLUMNS)))
    rows = [
        el("tr", join(el("td", cell) for cell in beside_cells(result, tally)))
        for result in statement.beside
        for tally in result.tallies
    ]
    table = el("div", el("table", head, el("tbody", join(rows))), class_="card overview")
    notes = [note for result in statement.beside for note in beside_notes(result)]
    said = el("ul", join(el("li", note) for note in notes), class_="small") if notes else NOTHING
    lost = [(result.name, one) for result in statement.beside for one in result.losses]
    listed = el(
        "ul",
        join(el("li", el("code", one.case), f" ({name}): {one.why}") for name, one in lost),
        class_="small",
    )
    more = (
        folded(f"{len(lost)} that the baseline had right and the candidate has not", listed)
        if lost
        else NOTHING
    )
    return join((heading("Beside the gates", BESIDE), table, said, more))


# ------------------------------------------------------------------------------ controls and curves


def controls_section(statement: Statement) -> Html:
    """The runs whose outcome is known beforehand."""
    lead = "Runs whose outcome is known beforehand. If one comes out otherwise, the whole report is inconclusive."
    if not statement.decision.controls:
        return heading("Controls", "No control was run: nothing shows that this gate can fail.")
    head = el("thead", el("tr", join(el("th", name) for name in ("Control", "Must", "Did", "Because of"))))
    rows = [
        el(
            "tr",
            el("td", el("b", control.name), el("p", sentence(control.sentence), class_="soft small")),
            el("td", el("span", "must: ", class_="tag"), control.expected.value),
            el("td", el("span", f"{'✓' if control.holds else '✗'} {control.verdict.value}",
                        class_="chip pass" if control.holds else "chip fail")),
            el("td", ", ".join(control.because) or "–", class_="mono"),
        )
        for control in statement.decision.controls
    ]  # fmt: skip
    table = el("table", head, el("tbody", join(rows)), class_="stack")
    return join((heading("Controls", lead), el("div", table, class_="card")))


def curves_section(statement: Statement) -> Html:
    """The operating curve of each rule; a curve that several gates share is drawn once.

    Curves of floors and advisory rules are folded away: what those let through, other rules stop.
    """
    drawn: dict[object, list[GateResult]] = {}
    for gate in statement.decision.gates:
        if gate.curve:
            drawn.setdefault((gate.rule, gate.curve), []).append(gate)
    if not drawn:
        return NOTHING
    weak = [_curve_figure(same) for same in drawn.values() if _is_weak(same)]
    shown = el(
        "div",
        join(_curve_figure(same) for same in drawn.values() if not _is_weak(same)),
        class_="plots small-ones",
    )
    lead = (
        "The chance to pass, by how good the model truly is: what these rules can tell apart, and what not."
    )
    more = folded(
        f"{len(weak)} more: named prompts alone, and advice",
        el("div", join(weak), class_="plots small-ones"),
    )
    return join((heading("What the rules would let through", lead), shown, more if weak else None))


def _is_weak(same: list[GateResult]) -> bool:
    return all(gate.rule == "floor" or gate.tier == "advisory" for gate in same)


def _curve_figure(same: list[GateResult]) -> Html:
    words = dict.fromkeys(gate.curve_words for gate in same)
    rule = el("span", f" · {RULES[same[0].rule]}", class_="soft")
    return el(
        "figure",
        el("h3", ", ".join(title(gate.gate) for gate in same), rule),
        operating_curve(same[0]),
        el("figcaption", join(el("p", f"This rule {said}.") for said in words)),
        class_="card",
    )


# ------------------------------------------------------------------------------------------ bound


def binding_section(statement: Statement) -> Html:
    """Everything that the verdict is bound to."""
    rows: list[tuple[str, Html | str]] = [
        *_arm_rows("Candidate", statement.candidate),
        *_arm_rows("Baseline", statement.baseline),
        ("Suite", _pinned(statement.suite)),
        ("Policy", _pinned(statement.policy)),
        ("Samples", _digest(statement.samples.digest)),
        ("Program", _harness(statement.harness)),
        ("Machine", _name_value_pairs(statement.host)),
        ("Expires", statement.expires or "when its reader says so"),
    ]
    lead = (
        "The verdict is about these bytes on this engine with these flags. Any other asks for a new report."
    )
    listed = el("dl", join(join((el("dt", k), el("dd", v))) for k, v in rows), class_="card bound")
    return join((heading("What was bound", lead), listed))


def _arm_rows(label: str, arm: ComparedArm) -> list[tuple[str, Html | str]]:
    return [(label, _model(arm.model)), (f"{label}'s engine", _engine(arm))]


def _model(model: ModelIdentity) -> Html:
    base = f", from {model.base_model}" if model.base_model else ""
    made_of = [_digest(digest, f"{role} ") for role, digest in sorted(model.parents.items())]
    return join((el("div", f"{model.name}, {model.format}{base}"), _digest(model.root), *made_of))


def _engine(arm: ComparedArm) -> Html:
    engine = arm.engine
    lines = [*_flags(engine.argv), *(f"{name}={value}" for name, value in sorted(engine.environment.items()))]
    return join((
        el("div", f"{engine.name}: {engine.build}, {engine.dialect} by the {engine.driver} driver"),
        el("div", f"computed with {arm.numerics}") if arm.numerics else None,
        el("div", el("code", engine.image)) if engine.image else None,
        _digest(engine.model_file, "file ") if engine.model_file else None,
        _digest(engine.digest, "all of it "),
        el("pre", "\n".join(lines)) if lines else None,
    ))  # fmt: skip


def _flags(argv: tuple[str, ...]) -> list[str]:
    """The arguments with each flag and its value on one line."""
    lines: list[str] = []
    for word in argv:
        if word.startswith("-") or not lines or " " in lines[-1]:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


def _pinned(pinned: Pinned) -> Html:
    version = "" if pinned.version is None else f" version {pinned.version}"
    return join((el("div", f"{pinned.name}{version}"), _digest(pinned.digest)))


def _harness(harness: Harness) -> Html:
    dirty = ", with changes that are not committed" if harness.dirty else ""
    commit = (
        el("div", el("code", harness.commit), dirty) if harness.commit else el("div", "not from a checkout")
    )
    return join(
        (
            el("div", f"manners {harness.version}"),
            commit,
            el("div", _name_value_pairs(harness.tools), class_="soft small"),
        )
    )


def _name_value_pairs(pairs: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(dict(pairs).items()))  # type: ignore[call-overload]


def _digest(digest: str, label: str = "") -> Html:
    return el("div", el("span", label, class_="soft") if label else None, el("code", digest))


def footer(statement: Statement, statement_digest: str, signers: tuple[str, ...]) -> Html:
    """What the page is a view of, and how to verify that."""
    signed = f" Signed by {', '.join(signers)}." if signers else ""
    named = f" It shows the statement {statement_digest}." if statement_digest else ""
    return el(
        "footer",
        el(
            "p",
            f"This page is a view; what counts is report.json beside it.{named}{signed} To ask whether it is genuine:",
        ),
        el(
            "pre",
            f"$ manners gate verify report.json --artefact DIR\n$ sha256sum {SAMPLES_FILE}\n"
            f"{statement.samples.digest.removeprefix('sha256:')}  {SAMPLES_FILE}",
        ),
    )


# --------------------------------------------------------------------------------- shared pieces


def chip(verdict: Verdict, *, decides: bool = True) -> Html:
    """A verdict as a mark and a word, in its colour, or grey if it does not decide."""
    colour = verdict.value if decides else "plain"
    return el("span", f"{MARKS[verdict]} ", el("span", verdict.value, class_="w"), class_=f"chip {colour}")


def gate_chip(statement: Statement, name: str) -> Html:
    found, decides = gate_verdict(statement, name)
    return chip(found, decides=decides)


def heading(name: str, lead: str) -> Html:
    """A section's heading and introduction."""
    return join((el("h2", name), el("p", lead, class_="lead")))


def folded(line: str, body: Html) -> Html:
    """Content that opens on a click on its summary line, without a script."""
    return el("details", el("summary", line), body, class_="more")
