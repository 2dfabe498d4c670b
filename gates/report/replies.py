"""The replies to show: what failed and what flipped, side by side, the worst with their texts. Pure.

A reply may hold control characters, or marks that make one text look like another; `visible` writes them out.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gates.contracts.sample import BASELINE, CANDIDATE
from gates.contracts.verdict import Outcome
from gates.report.statement import CaseFailure, Statement


@dataclass(frozen=True, slots=True)
class PromptAndReply:
    """A prompt (its last user message) and the raw reply, with tool calls written out."""

    prompt: str
    reply: str


Texts = Mapping[tuple[str, str], PromptAndReply]
"""The prompt and reply of a case (id) and an arm, as far as they are known."""

_PLAIN: Final = frozenset("\n\t")
_UNSAFE: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# Joiners are part of spelling in Indic scripts and of emoji, and do not reorder text.
_JOINERS: Final = frozenset("\u200c\u200d")


def visible(text: str) -> str:
    """Every invisible or reordering character written as \\u{...}; line breaks and tabs are kept, CR LF becomes LF."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join(c if _harmless(c) else f"\\u{{{ord(c):x}}}" for c in text)


def _harmless(character: str) -> bool:
    if character in _PLAIN or character in _JOINERS:
        return True
    return unicodedata.category(character) not in _UNSAFE


def shorten(text: str, most: int) -> str:
    """At most `most` characters, and how many more there were."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most:,} more characters in samples.jsonl)"


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

_ORDER: Final[tuple[Kind, ...]] = ("failed", "lost", "both", "won")


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
    failed = {(f.arm, f.gate, f.case): f for f in statement.failures}
    found: dict[str, list[ReplyEntry]] = {}
    for gate in dict.fromkeys(result.gate for result in statement.decision.gates):
        rules = [rule for rule in statement.decision.gates if rule.gate == gate]
        paired = any(rule.rule == "compare" for rule in rules)
        ours = [case for arm, its, case in failed if (arm, its) == (CANDIDATE, gate)]
        made = [
            _entry(
                gate, case, failed.get((CANDIDATE, gate, case)), failed.get((BASELINE, gate, case)), paired
            )
            for case in dict.fromkeys([*ours, *(flip.case for rule in rules for flip in rule.flips)])
        ]
        if made:
            found[gate] = sorted(made, key=lambda e: (_ORDER.index(e.kind), not e.named, e.case))
    return found


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
