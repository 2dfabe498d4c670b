"""Selects the replies to show: what failed and what flipped, side by side; the worst with their texts. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from gates.contracts.sample import BASELINE, CANDIDATE
from gates.contracts.verdict import Outcome
from gates.report.statement import CaseFailure, Statement

MAX_OPEN: Final = 3  # cases per gate that are shown open
MAX_FOLDED: Final = 17  # further cases per gate that are folded away, with their texts
MAX_TEXT: Final = 1500  # characters of a prompt or a reply; a spoken reply has 100 to 300

Kind = Literal["failed", "lost", "both", "won"]

KIND_LABELS: Final[dict[Kind, str]] = {
    "failed": "failed",
    "lost": "lost to the baseline",
    "both": "both failed",
    "won": "won from the baseline",
}


@dataclass(frozen=True, slots=True)
class ReplyEntry:
    """One case of one gate: its outcome in both arms, and the evidence (the candidate's, else the baseline's)."""

    gate: str
    case: str
    kind: Kind
    named: bool
    candidate: Outcome
    baseline: Outcome | None
    why: str


def entries(statement: Statement) -> dict[str, list[ReplyEntry]]:
    """The entries of each gate, in the decision's order; losses first, named cases before others."""
    gates = dict.fromkeys(gate.gate for gate in statement.decision.gates)
    failed = {arm: _by_case(statement.failures, arm) for arm in (CANDIDATE, BASELINE)}
    found = {gate: _entries_of(statement, gate, failed[CANDIDATE], failed[BASELINE]) for gate in gates}
    return {gate: entries for gate, entries in found.items() if entries}


def _by_case(failures: Iterable[CaseFailure], arm: str) -> dict[tuple[str, str], CaseFailure]:
    return {(f.gate, f.case): f for f in failures if f.arm == arm}


def _entries_of(
    statement: Statement,
    gate: str,
    ours: dict[tuple[str, str], CaseFailure],
    theirs: dict[tuple[str, str], CaseFailure],
) -> list[ReplyEntry]:
    rules = [g for g in statement.decision.gates if g.gate == gate]
    flips = {flip.case: flip for rule in rules for flip in rule.flips}
    paired = any(rule.rule == "compare" for rule in rules)
    cases = dict.fromkeys([*(c for g, c in ours if g == gate), *flips])
    order: list[Kind] = ["failed", "lost", "both", "won"]
    made = [_entry(gate, case, ours.get((gate, case)), theirs.get((gate, case)), paired) for case in cases]
    return sorted(made, key=lambda e: (order.index(e.kind), not e.named, e.case))


def _entry(
    gate: str, case: str, ours: CaseFailure | None, theirs: CaseFailure | None, paired: bool
) -> ReplyEntry:
    """A case that is in no list of failures was ok. Whether the baseline counts depends on the rule."""
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
    return ReplyEntry(gate, case, kind, named, candidate, baseline, evidence.why if evidence else "")


def split_for_display(found: list[ReplyEntry]) -> tuple[list[ReplyEntry], list[ReplyEntry], list[ReplyEntry]]:
    """The entries that are shown open, those that are folded away, and those that are only named."""
    end = MAX_OPEN + MAX_FOLDED
    return found[:MAX_OPEN], found[MAX_OPEN:end], found[end:]


def count_by_kind(found: list[ReplyEntry]) -> str:
    """The number of entries of each kind: "120 lost to the baseline, 3 both failed"."""
    counts = {kind: sum(entry.kind == kind for entry in found) for kind in KIND_LABELS}
    return ", ".join(f"{n} {KIND_LABELS[kind]}" for kind, n in counts.items() if n)
