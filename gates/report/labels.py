"""What a report shows: its labels, its formatted values, and its replies. Shared by the page and the Markdown. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf
from typing import Final

from gates.contracts.sample import BASELINE, CANDIDATE, OTHER_PREFIX
from gates.contracts.verdict import METRICS, GateResult, Outcome, Verdict
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


def headline(statement: Statement) -> str:
    """The verdict in one sentence."""
    deciding = [gate.verdict for gate in statement.decision.gates if gate.tier != "advisory"]
    models = (statement.candidate.model, statement.baseline.model)
    new, old = (model.name for model in models)
    if new == old:  # one model in two forms: the forms tell them apart
        new, old = (f"{model.name} ({model.format})" for model in models)
    rules = plural(len(deciding), "deciding rule")
    if statement.verdict is Verdict.PASS:
        return f"{new} may take over from {old}: all {rules} passed."
    if statement.verdict is Verdict.FAIL:
        return f"{new} must not take over: {deciding.count(Verdict.FAIL)} of {rules} failed."
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


def amount(value: float | None, gate: GateResult) -> str:
    """A value in the gate's unit: 1.8 %, 92 ms, 6 % slower, 2 pt worse."""
    if value is None:
        return "–"
    if gate.rule == "latency":
        many = f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}".removesuffix(".0")
        return f"{'∞' if isinf(value) else many} {gate.unit}"
    if gate.rule == "ratio":
        return f"{percent(abs(value))} {'faster' if value < 0 else 'slower'}"
    if gate.rule == "compare":
        return f"{points(abs(value))} pt {'better' if value < 0 else 'worse'}"
    return percent(value)


def required(gate: GateResult) -> str:
    """What the policy asks for."""
    if gate.rule == "zero":
        return "0 failures"
    metric = METRICS.get(gate.gate.partition("[")[0])
    least = gate.rule in ("floor", "rate") or (gate.rule == "latency" and metric and metric.is_rate)
    return f"{'≥' if least else '≤'} {amount(gate.limit, gate)}"


def counted(statement: Statement, name: str, prefix: str = "", *, named: bool = False) -> list[str]:
    """Good answers of candidate and baseline to a gate's prompts, 24/25, with the number of lost ones; "–" if none were asked."""
    found = [statement.tally(name, f"{prefix}{arm}", named=named) for arm in (CANDIDATE, BASELINE)]
    return [f"{t.ok}/{t.n}" + (f" ({t.lost} lost)" if t.lost else "") if t else "–" for t in found]


def side_by_side(statement: Statement, gate: GateResult) -> tuple[str, str]:
    """The results of candidate and baseline by a rule, in prompts; a time is the candidate's, or relative to the baseline's."""
    ours, its = counted(statement, gate.gate, named=gate.rule == "floor")
    if ours == "–" or gate.rule in ("latency", "ratio"):
        in_prompts = gate.rule in ("floor", "zero", "rate")
        ours = f"{gate.n - gate.bad}/{gate.n}" if in_prompts else amount(gate.estimate, gate)
        ours = ours if gate.n else "nothing"
    return ours, its


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
    return " · ".join(counted(statement, name, prefix))


def gate_verdict(statement: Statement, name: str) -> tuple[Verdict, bool]:
    """The worst verdict among a gate's deciding rules and True; if it has none, of its advisory ones and False."""
    order = [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL]
    rules = [gate for gate in statement.decision.gates if gate.gate == name]
    deciding = [gate for gate in rules if gate.tier != "advisory"]
    return max((gate.verdict for gate in deciding or rules), key=order.index), bool(deciding)


def gate_names(statement: Statement) -> list[str]:
    """The gates of the decision in order, each once."""
    return list(dict.fromkeys(gate.gate for gate in statement.decision.gates))


@dataclass(frozen=True, slots=True)
class PromptAndReply:
    """A prompt (its last user message) and the raw reply, with tool calls written out."""

    prompt: str
    reply: str


Texts = Mapping[tuple[str, str], PromptAndReply]
"""The prompt and reply of a case (id) and an arm, as far as they are known."""

MAX_SHOWN: Final = 20  # cases per gate that are shown with their texts
MAX_TEXT: Final = 1500  # characters of a prompt or a reply; a spoken reply has 100 to 300


@dataclass(frozen=True, slots=True)
class ReplyEntry:
    """A case of a gate that the candidate failed, or that flipped, with its outcomes, and the evidence (the candidate's, else the baseline's)."""

    case: str
    named: bool
    candidate: Outcome
    baseline: Outcome
    why: str


def entries(statement: Statement) -> dict[str, list[ReplyEntry]]:
    """The entries of each gate, in the decision's order; losses first, named cases before others."""
    failed = {(f.arm, f.gate, f.case): f for f in statement.failures}
    found: dict[str, list[ReplyEntry]] = {}
    for gate in gate_names(statement):
        cases = [case for arm, its, case in failed if (arm, its) == (CANDIDATE, gate)]
        cases += [flip.case for rule in statement.decision.gates if rule.gate == gate for flip in rule.flips]
        made = list[ReplyEntry]()
        for case in dict.fromkeys(cases):
            ours, theirs = (failed.get((arm, gate, case)) for arm in (CANDIDATE, BASELINE))
            mine, its = (one.outcome if one else "ok" for one in (ours, theirs))
            evidence = ours or theirs
            named, why = (evidence.named, evidence.why) if evidence else (False, "")
            made.append(ReplyEntry(case, named, mine, its, why))
        if made:
            found[gate] = sorted(
                made, key=lambda e: (e.candidate == "ok", e.baseline != "ok", not e.named, e.case)
            )
    return found


def count(found: list[ReplyEntry]) -> str:
    """How many the candidate failed, and how many of these the baseline did not: "123 failed, 120 of them right in the baseline"."""
    failed = [entry for entry in found if entry.candidate != "ok"]
    lost = sum(entry.baseline == "ok" for entry in failed)
    return f"{len(failed)} failed, {lost} of them right in the baseline"
