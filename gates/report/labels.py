"""Labels and formatted values of a report, shared by the page and the Markdown. Pure."""

import math
from typing import Final

from gates.contracts.metric import METRICS
from gates.contracts.sample import BASELINE, CANDIDATE, OTHER_PREFIX
from gates.contracts.verdict import GateResult, Verdict
from gates.judge.formatting import percent, plural, points, title
from gates.report.statement import Statement

RULES: Final = {
    "floor": "named prompts",
    "zero": "no failures",
    "rate": "rate",
    "compare": "against the baseline",
    "latency": "limit",
    "ratio": "against the baseline",
}

MARKS: Final = {Verdict.PASS: "✓", Verdict.FAIL: "✗", Verdict.INCONCLUSIVE: "?"}


def sentence(words: str) -> str:
    """A sentence of the judge with a capital letter and a full stop."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "?")) else ".")


def is_rate(gate: str) -> bool:
    """Whether a latency gate measures a rate instead of a time."""
    metric = METRICS.get(gate.partition("[")[0])
    return metric is not None and metric.is_rate


def headline(statement: Statement) -> str:
    """The verdict in one sentence."""
    deciding = [gate for gate in statement.decision.gates if gate.tier != "advisory"]
    models = (statement.candidate.model, statement.baseline.model)
    new, old = (model.name for model in models)
    if new == old:  # one model in two forms: the forms tell them apart
        new, old = (f"{model.name} ({model.format})" for model in models)
    match statement.verdict:
        case Verdict.PASS:
            return f"{new} may take over from {old}: all {plural(len(deciding), 'deciding rule')} passed."
        case Verdict.FAIL:
            failed = sum(gate.verdict is Verdict.FAIL for gate in deciding)
            return f"{new} must not take over: {failed} of {plural(len(deciding), 'deciding rule')} failed."
        case Verdict.INCONCLUSIVE:
            return f"It is not known whether {new} may take over from {old}."


REASONS: Final = 6  # shown at the top; all reasons stand with their gates


def reasons(statement: Statement) -> list[tuple[str, str]]:
    """The first sentences that decided, each with the gate's title ("" if it is not about a gate); none for a pass."""
    if statement.verdict is Verdict.PASS:
        return []
    names, found = set(gate_names(statement)), statement.decision.reasons
    parted = (reason.partition(": ") for reason in found[:REASONS])
    said = [(title(a), sentence(c)) if a in names else ("", sentence(a + b + c)) for a, b, c in parted]
    more = len(found) - len(said)
    return [*said, ("", f"And {plural(more, 'more reason')}, below.")] if more > 0 else said


# --------------------------------------------------------------------------------------- numbers


def amount(value: float | None, gate: GateResult) -> str:
    """A value in the gate's unit: 1.8 %, 92 ms, 6 % slower, 2 pt worse."""
    if value is None:
        return "–"
    if gate.rule == "latency":
        return f"{plain(value)} {gate.unit}"
    if gate.rule == "ratio":
        return f"{percent(abs(value))} {'faster' if value < 0 else 'slower'}"
    if gate.rule == "compare":
        return f"{points(abs(value))} pt {'better' if value < 0 else 'worse'}"
    return percent(value)


def plain(value: float) -> str:
    """A number for display: 1,204 or 92.3; infinity is ∞."""
    return (
        "∞"
        if math.isinf(value)
        else f"{value:,.0f}"
        if abs(value) >= 100
        else f"{value:,.1f}".removesuffix(".0")
    )


def measured(gate: GateResult) -> str:
    """What was measured: counts where cases were counted, else the estimate."""
    if gate.n == 0:
        return "nothing"
    counted = gate.rule in ("floor", "zero", "rate")
    return tally_text(gate.n - gate.bad, gate.n) if counted else amount(gate.estimate, gate)


def required(gate: GateResult) -> str:
    """What the policy asks for."""
    if gate.rule == "zero":
        return "0 failures"
    least = gate.rule in ("floor", "rate") or (gate.rule == "latency" and is_rate(gate.gate))
    return f"{'≥' if least else '≤'} {amount(gate.limit, gate)}"


def tally_text(ok: int, n: int, lost: int = 0) -> str:
    """A count of good answers, 24/25, with the number of lost ones."""
    return f"{ok}/{n}" + (f" ({lost} lost)" if lost else "")


def side_by_side(statement: Statement, gate: GateResult) -> tuple[str, str]:
    """The results of candidate and baseline by a rule, in prompts; a time is the candidate's, or relative to the baseline's."""
    if gate.rule in ("latency", "ratio"):
        return measured(gate), "–"
    named = gate.rule == "floor"
    found = (statement.tally(gate.gate, arm, named=named) for arm in (CANDIDATE, BASELINE))
    ours, its = (tally_text(t.ok, t.n, t.lost) if t else "" for t in found)
    return ours or measured(gate), its or "–"


def overview_cells(statement: Statement, name: str) -> tuple[str, str, str]:
    """A gate in one line (candidate, baseline, required), from the first rule that has the gate's verdict."""
    found, decides = gate_verdict(statement, name)
    rules = (g for g in statement.decision.gates if g.gate == name and g.verdict is found)
    gate = next(g for g in rules if g.tier != "advisory" or not decides)
    return *side_by_side(statement, gate), required(gate)


def other_title(statement: Statement) -> str:
    """The heading of `other_cell`; "" for a report of an earlier program, which judged the engine alone."""
    return {"through": "Engine alone", "engine": "Through the gateway"}.get(statement.judged, "")


def other_cell(statement: Statement, name: str) -> str:
    """Good answers of candidate and baseline by the replies that do not decide; those of the decision where none differed."""
    prefix = OTHER_PREFIX[statement.judged]
    prefix = prefix if any(tally.arm.startswith(prefix) for tally in statement.tallies) else ""
    found = (statement.tally(name, f"{prefix}{arm}", named=False) for arm in (CANDIDATE, BASELINE))
    return " · ".join(tally_text(t.ok, t.n, t.lost) if t else "–" for t in found)


def other_words(statement: Statement, name: str) -> str:
    """How the replies that do not decide came out, with the candidate's first failure; "" if it has none."""
    arm = f"{OTHER_PREFIX[statement.judged]}{CANDIDATE}" if statement.judged else ""
    found = [failure for failure in statement.failures if (failure.gate, failure.arm) == (name, arm)]
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)" if found[1:] else ""
    good, its = other_cell(statement, name).split(" · ")
    return f"{other_title(statement)}: {good}, baseline {its}; {found[0].case}: {found[0].why}{more}"


def gate_verdict(statement: Statement, name: str) -> tuple[Verdict, bool]:
    """The worst verdict among a gate's deciding rules and True; if it has none, of its advisory ones and False."""
    order = [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL]
    rules = [gate for gate in statement.decision.gates if gate.gate == name]
    deciding = [gate for gate in rules if gate.tier != "advisory"]
    return max((gate.verdict for gate in deciding or rules), key=order.index), bool(deciding)


def gate_names(statement: Statement) -> list[str]:
    """The gates of the decision in order, each once."""
    return list(dict.fromkeys(gate.gate for gate in statement.decision.gates))
