"""The replies that decided: what failed and what flipped, candidate and baseline side by side. Pure.

Every case that the candidate failed, or that changed between the arms, is named. The worst are
shown with their texts, as many as a person reads; the rest by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from gates.contracts.verdict import Outcome
from gates.report.statement import BASELINE, CANDIDATE, Failure, Statement

SHOWN: Final = 3  # cases per gate that lie open
FOLDED: Final = 17  # cases per gate behind them, with their texts
MAX_TEXT: Final = 1500  # characters of a prompt or a reply; a spoken one has 100 to 300

Kind = Literal["failed", "lost", "both", "won"]

KINDS: Final[dict[Kind, str]] = {
    "failed": "failed",
    "lost": "lost to the baseline",
    "both": "both failed",
    "won": "won from the baseline",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One case of one gate: how it went for both arms, and the evidence (the candidate's, or the baseline's)."""

    gate: str
    case: str
    kind: Kind
    named: bool
    candidate: Outcome
    baseline: Outcome | None
    why: str


def entries(statement: Statement) -> dict[str, list[Entry]]:
    """Per gate, in the order of the decision, its entries: what was lost first, the named before others."""
    gates = dict.fromkeys(gate.gate for gate in statement.decision.gates)
    failed = {arm: _by_case(statement.failures, arm) for arm in (CANDIDATE, BASELINE)}
    found = {gate: _entries_of(statement, gate, failed[CANDIDATE], failed[BASELINE]) for gate in gates}
    return {gate: entries for gate, entries in found.items() if entries}


def _by_case(failures: Iterable[Failure], arm: str) -> dict[tuple[str, str], Failure]:
    return {(f.gate, f.case): f for f in failures if f.arm == arm}


def _entries_of(
    statement: Statement,
    gate: str,
    ours: dict[tuple[str, str], Failure],
    theirs: dict[tuple[str, str], Failure],
) -> list[Entry]:
    rules = [g for g in statement.decision.gates if g.gate == gate]
    flips = {flip.case: flip for rule in rules for flip in rule.flips}
    paired = any(rule.rule == "compare" for rule in rules)
    cases = dict.fromkeys([*(c for g, c in ours if g == gate), *flips])
    order: list[Kind] = ["failed", "lost", "both", "won"]
    made = [_entry(gate, case, ours.get((gate, case)), theirs.get((gate, case)), paired) for case in cases]
    return sorted(made, key=lambda e: (order.index(e.kind), not e.named, e.case))


def _entry(gate: str, case: str, ours: Failure | None, theirs: Failure | None, paired: bool) -> Entry:
    """A case that is in no list of failures was ok; whether a baseline counts is the rule's matter."""
    candidate = ours.outcome if ours else "ok"
    baseline = theirs.outcome if theirs else "ok"
    if candidate == "ok":
        kind: Kind = "won"
    elif baseline != "ok":
        kind = "both"
    else:
        kind = "lost" if paired else "failed"
    evidence = ours or theirs
    named = evidence.named if evidence else False
    return Entry(gate, case, kind, named, candidate, baseline, evidence.why if evidence else "")


def split(found: list[Entry]) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """What lies open, what is folded away with its texts, and what is only named."""
    end = SHOWN + FOLDED
    return found[:SHOWN], found[SHOWN:end], found[end:]


def counted(found: list[Entry]) -> str:
    """How many there are of each kind: "120 lost to the baseline, 3 both failed"."""
    counts = {kind: sum(entry.kind == kind for entry in found) for kind in KINDS}
    return ", ".join(f"{n} {KINDS[kind]}" for kind, n in counts.items() if n)
