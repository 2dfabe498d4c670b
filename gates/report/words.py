"""How a report says its numbers, for the page and for Markdown alike. Pure.

Nothing is computed here: what a sentence needs is in the statement.
"""

from __future__ import annotations

import math
from typing import Final

from gates.contracts.verdict import GateResult, Verdict
from gates.judge.words import Way, percent, points, rounded
from gates.report.statement import BASELINE, CANDIDATE, Statement, Tally

TITLES: Final = {
    "leak": "No thought aloud",
    "raw_call": "No raw tool call in speech",
    "empty": "Never silent",
    "tools": "The right tool call",
    "no_markdown": "No markdown",
    "factual": "Facts",
    "reasoning": "Reasoning",
    "loop": "No loops",
    "verbosity": "Brevity",
    "speakable": "Can be spoken",
    "script": "The right script",
    "ttft": "Time to first token",
    "first_sentence": "Time to first sentence",
    "decode": "Decode speed",
}

RULES: Final = {
    "floor": "named prompts",
    "zero": "no failure",
    "rate": "rate",
    "compare": "against the baseline",
    "latency": "limit",
    "ratio": "against the baseline",
}

MARKS: Final = {Verdict.PASS: "✓", Verdict.FAIL: "✗", Verdict.INCONCLUSIVE: "?"}


def title(gate: str) -> str:
    """What a gate is about, in words; its name where there are none. `ttft[2k]` is of one prompt length."""
    name, _, bucket = gate.partition("[")
    return TITLES.get(name, name) + (f", prompts of {bucket.rstrip(']')}" if bucket else "")


def sentence(words: str) -> str:
    """A sentence as the judge wrote it, with a capital and a stop."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "?")) else ".")


def rises(gate: GateResult) -> bool:
    """Whether more is better."""
    return gate.rule in ("floor", "rate") or (gate.rule == "latency" and is_rate(gate.gate))


def is_rate(gate: str) -> bool:
    """Whether a latency gate measures a speed and no time."""
    return gate.partition("[")[0] == "decode"


def headline(statement: Statement) -> str:
    """The verdict in one sentence."""
    deciding = [gate for gate in statement.decision.gates if gate.tier != "advisory"]
    models = (statement.candidate.model, statement.baseline.model)
    new, old = (model.name for model in models)
    if new == old:  # one model in two forms: the forms tell them apart
        new, old = (f"{model.name} ({model.format})" for model in models)
    match statement.verdict:
        case Verdict.PASS:
            return f"{new} may take over from {old}: all {count(len(deciding), 'deciding rule')} passed."
        case Verdict.FAIL:
            failed = sum(gate.verdict is Verdict.FAIL for gate in deciding)
            return f"{new} must not take over: {failed} of {count(len(deciding), 'deciding rule')} failed."
        case Verdict.INCONCLUSIVE:
            return f"It is not known whether {new} may take over: {_why_open(statement, deciding)}."


def _why_open(statement: Statement, deciding: list[GateResult]) -> str:
    opened = sum(gate.verdict is Verdict.INCONCLUSIVE for gate in deciding)
    broken = sum(not control.holds for control in statement.decision.controls)
    parts = []
    if opened:
        parts.append(
            f"{opened} of {count(len(deciding), 'deciding rule')} {'is' if opened == 1 else 'are'} open"
        )
    if broken:
        parts.append(f"{count(broken, 'control')} did not come out as {'it' if broken == 1 else 'they'} must")
    return " and ".join(parts) or "not all was run that the policy asks for"


REASONS: Final = 6  # a reader's first sight; all of them stand with their gates


def reasons(statement: Statement) -> list[tuple[str, str]]:
    """The first sentences that decided, each with the gate's title ("" for what is no gate's); none of a pass."""
    if statement.verdict is Verdict.PASS:
        return []
    names, found = set(gate_names(statement)), statement.decision.reasons
    parted = (reason.partition(": ") for reason in found[:REASONS])
    said = [(title(a), sentence(c)) if a in names else ("", sentence(a + b + c)) for a, b, c in parted]
    more = len(found) - len(said)
    return [*said, ("", f"And {count(more, 'more reason')}, below.")] if more > 0 else said


def count(n: int, noun: str) -> str:
    """2 rules, 1 rule."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


# --------------------------------------------------------------------------------------- numbers


def amount(value: float | None, gate: GateResult, way: Way = "near") -> str:
    """A value in the unit of the gate: 1.8 %, 92 ms, 33.1 tokens/s, 6 % slower, 2 pt worse.

    A bound is rounded away from what it bounds (`way`), as in the judge's sentences.
    """
    if value is None:
        return "–"
    if gate.rule == "latency":
        return f"{plain(value, way)} {gate.unit}"
    if gate.rule == "ratio":
        return f"{percent(abs(value), way)} {'faster' if value < 0 else 'slower'}" if value else "as fast"
    if gate.rule == "compare":
        return f"{points(abs(value), way)} pt {'better' if value < 0 else 'worse'}" if value else "no worse"
    return percent(value, way)


def plain(value: float, way: Way = "near") -> str:
    """A number as a reader wants it: 1,204 or 92.3; what never came is ∞."""
    if math.isinf(value):
        return "∞"
    digits = rounded(value, 0 if abs(value) >= 100 else 1, way)
    return f"{float(digits):,.1f}".removesuffix(".0")


def measured(gate: GateResult) -> str:
    """What was found: counts where cases were counted, else the estimate."""
    if gate.n == 0:
        return "nothing"
    match gate.rule:
        case "floor" | "rate":
            return f"{gate.n - gate.bad} of {gate.n}"
        case "zero":
            return f"{gate.bad} of {gate.n} failed"
        case _:
            return amount(gate.estimate, gate)


def bound(gate: GateResult) -> str:
    """The side of the interval that tells: of a failure how bad it is at least, else what it is at worst."""
    if gate.interval is None or (gate.rule == "floor" and gate.verdict is not Verdict.PASS):
        return ""
    low, high = gate.interval.low, gate.interval.high
    from_below = rises(gate) is not (gate.verdict is Verdict.FAIL)
    if (low if from_below else high) is None:
        from_below = not from_below
    side = low if from_below else high
    if side is None:
        return ""
    # At most 3 points worse, where 3 is negative, is at least 3 points better.
    turned = gate.rule in ("compare", "ratio") and side < 0
    least = from_below is not turned
    said = f"{'at least' if least else 'at most'} {amount(side, gate, 'down' if least else 'up')}"
    return (
        f"{amount(gate.estimate, gate)}, {said}"
        if gate.rule == "compare" and gate.estimate is not None
        else said
    )


def required(gate: GateResult) -> str:
    """What the policy asks for."""
    if gate.rule == "zero":
        return "none may fail"
    if gate.limit is None:
        return ""
    least = gate.limit * gate.n
    if gate.rule == "floor" and gate.n and abs(least - round(least)) < 1e-6:
        return f"≥ {round(least)} of {gate.n}"
    return f"{'≥' if rises(gate) else '≤'} {amount(gate.limit, gate)}"


def tally(found: Tally | None) -> str:
    """How an arm did: 24/25, with what was lost on the way."""
    if found is None:
        return "–"
    lost = f" ({found.lost} lost)" if found.lost else ""
    return f"{found.ok}/{found.n}{lost}"


def side_by_side(statement: Statement, gate: GateResult) -> tuple[str, str]:
    """How candidate and baseline did by a rule: counts of its prompts, medians of its times."""
    if gate.rule == "latency":
        theirs = next((t for t in statement.distributions if (t.gate, t.arm) == (gate.gate, BASELINE)), None)
        return measured(
            gate
        ), f"{plain(theirs.points[len(theirs.points) // 2])} {theirs.unit}" if theirs else "–"
    if gate.rule == "ratio":
        return measured(gate), "–"
    named = gate.rule == "floor"
    ours, theirs_all = (statement.tally(gate.gate, arm, named=named) for arm in (CANDIDATE, BASELINE))
    return tally(ours) if ours else measured(gate), tally(theirs_all)


def glance(statement: Statement, name: str) -> tuple[str, str, str]:
    """A gate in one line: candidate, baseline, required; of the first rule that has the gate's verdict."""
    found, decides = gate_verdict(statement, name)
    rules = (g for g in statement.decision.gates if g.gate == name and g.verdict is found)
    gate = next(g for g in rules if g.tier != "advisory" or not decides)
    return *side_by_side(statement, gate), required(gate)


def gate_verdict(statement: Statement, name: str) -> tuple[Verdict, bool]:
    """The worst verdict among a gate's deciding rules, and whether it has any; else of its advisory ones."""
    order = [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL]
    rules = [gate for gate in statement.decision.gates if gate.gate == name]
    deciding = [gate for gate in rules if gate.tier != "advisory"]
    return max((gate.verdict for gate in deciding or rules), key=order.index), bool(deciding)


def gate_names(statement: Statement) -> list[str]:
    """The gates of the decision, each once, in its order."""
    return list(dict.fromkeys(gate.gate for gate in statement.decision.gates))
