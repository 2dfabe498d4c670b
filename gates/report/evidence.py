"""The evidence on the page: replies side by side, controls, and what the rules would let through. Pure."""

from __future__ import annotations

from typing import Final

from gates.contracts.verdict import GateResult, Outcome, Verdict
from gates.report import replies
from gates.report.figures import operating_curve
from gates.report.html import NOTHING, Html, el, join
from gates.report.parts import folded, heading
from gates.report.replies import Entry
from gates.report.statement import BASELINE, CANDIDATE, Statement
from gates.report.texts import Texts, shorten
from gates.report.words import RULES, sentence, title

# ---------------------------------------------------------------------------------------- replies


def what_was_said(statement: Statement, texts: Texts) -> Html:
    """What failed and what flipped, by gate, side by side."""
    found = replies.entries(statement)
    if not found:
        words = "No reply of the candidate failed a gate, and none flipped."
        return heading("Replies", words)
    lead = "What failed, and what changed against the baseline: raw model text, as the engine gave it."
    return join((heading("Replies", lead), *(_said_in(gate, cases, texts) for gate, cases in found.items())))


def _said_in(gate: str, found: list[Entry], texts: Texts) -> Html:
    """The worst cases open, more of them behind a line, and the rest by name."""
    shown, behind, rest = replies.split(found)
    header = el(
        "h3", f"{title(gate)} ", el("span", f"· {replies.counted(found)}", class_="soft"), class_="said-in"
    )
    cases = (_case(entry, texts) for entry in shown)
    more = folded(f"{len(behind)} more with their texts", join(_case(entry, texts) for entry in behind))
    names = el("p", ", ".join(f"{e.case} ({replies.KINDS[e.kind]})" for e in rest), class_="mono")
    return join((
        header,
        *cases,
        more if behind else None,
        folded(f"{len(rest)} more by name", names) if rest else None,
    ))  # fmt: skip


def _case(entry: Entry, texts: Texts) -> Html:
    ours, theirs = texts(entry.case, CANDIDATE), texts(entry.case, BASELINE)
    known = ours or theirs
    prompt = shorten(known.prompt, replies.MAX_TEXT) if known else None
    pair = (
        _said("candidate", entry.candidate, ours.reply if ours else None),
        _said("baseline", entry.baseline, theirs.reply if theirs else None),
    )
    return el(
        "article",
        el(
            "header",
            el("code", entry.case),
            el("span", replies.KINDS[entry.kind], class_="chip plain"),
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


def _said(arm: str, outcome: Outcome | None, reply: str | None) -> Html:
    mark = el("span", outcome, class_=_OUTCOMES[outcome].value) if outcome else None
    if reply is None:
        body = el("p", "not there", class_="soft small")
    elif not reply:
        body = el("p", "(empty)", class_="soft small")
    else:
        # A text that scrolls must be reachable without a mouse.
        body = el("pre", shorten(reply, replies.MAX_TEXT), tabindex=0, dir="auto")
    return el("div", el("div", el("span", arm), mark), body, class_="said")


# ------------------------------------------------------------------------------ controls and curves


def controls(statement: Statement) -> Html:
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


def curves(statement: Statement) -> Html:
    """What each rule would let through; a curve that several gates share is drawn once.

    Named prompts and advisory rules are folded away: what they let through, the others do not.
    """
    drawn: dict[object, list[GateResult]] = {}
    for gate in statement.decision.gates:
        if gate.curve:
            drawn.setdefault((gate.rule, gate.curve), []).append(gate)
    if not drawn:
        return NOTHING
    weak = [_curve(same) for same in drawn.values() if _is_weak(same)]
    shown = el(
        "div", join(_curve(same) for same in drawn.values() if not _is_weak(same)), class_="plots small-ones"
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


def _curve(same: list[GateResult]) -> Html:
    words = dict.fromkeys(gate.curve_words for gate in same)
    rule = el("span", f" · {RULES[same[0].rule]}", class_="soft")
    return el(
        "figure",
        el("h3", ", ".join(title(gate.gate) for gate in same), rule),
        operating_curve(same[0]),
        el("figcaption", join(el("p", f"This rule {said}.") for said in words)),
        class_="card",
    )
