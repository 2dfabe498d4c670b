"""The replies to show: what failed and what flipped, side by side, the worst with their texts. Pure.

A reply may hold control characters, or marks that make one text look like another; `visible` writes them out.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gates.contracts.sample import BASELINE, CANDIDATE
from gates.contracts.verdict import Outcome
from gates.report.statement import Statement


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


MAX_SHOWN: Final = 20  # cases per gate that are shown with their texts
MAX_TEXT: Final = 1500  # characters of a prompt or a reply; a spoken reply has 100 to 300


@dataclass(frozen=True, slots=True)
class ReplyEntry:
    """One case of one gate that the candidate failed, or that flipped: its outcome in both arms, and the evidence (the candidate's, else
    the baseline's).
    """

    case: str
    named: bool
    candidate: Outcome
    baseline: Outcome
    why: str


def entries(statement: Statement) -> dict[str, list[ReplyEntry]]:
    """The entries of each gate, in the decision's order; losses first, named cases before others."""
    failed = {(f.arm, f.gate, f.case): f for f in statement.failures}
    found: dict[str, list[ReplyEntry]] = {}
    for gate in dict.fromkeys(result.gate for result in statement.decision.gates):
        cases = [case for arm, its, case in failed if (arm, its) == (CANDIDATE, gate)]
        cases += [flip.case for rule in statement.decision.gates if rule.gate == gate for flip in rule.flips]
        made = list[ReplyEntry]()
        for case in dict.fromkeys(cases):
            ours, theirs = failed.get((CANDIDATE, gate, case)), failed.get((BASELINE, gate, case))
            evidence = ours or theirs
            named, why = (evidence.named, evidence.why) if evidence else (False, "")
            # A case that is in no list of failures was ok.
            made.append(
                ReplyEntry(
                    case, named, ours.outcome if ours else "ok", theirs.outcome if theirs else "ok", why
                )
            )
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
