"""Judges a whole reply: in production (`find_violations`), and to an everyday request without the tools for it (`find_everyday_fault`).
Pure; `find_violations` takes 0.15 ms for 300 characters of speech, some tens of ms at most.

A case's `expect["everyday"]` is {"declines": true}: the reply says that it cannot; {"answer": {...}}, as `find_wrong_answer`; or
{"says": true}: anything that can be spoken. A call, and whatever is a fault in production, is always bad. Refusals are phrases in
English and Kannada, without idioms ("I can't wait"). Alone they say little, because an assistant without taxi access rightly says so.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from gates.detect.answers import find_wrong_answer
from gates.detect.detection import Detection, detection
from gates.detect.leak import find_leaks
from gates.detect.loop import find_loops
from gates.detect.markdown import find_markdown
from gates.detect.rawcall import find_raw_calls
from gates.detect.tags import find_broken_template, find_empty

MAX_CHARS: Final = 16_384
"""How many characters from the beginning are searched for leaks, raw calls and markers."""
MAX_MARKDOWN_CHARS: Final = 1_000
"""The same for Markdown: about a minute of speech. The parser takes 0.7 s for 16,384 times "["."""
MAX_LOOP_CHARS: Final = 4_000
"""How many characters from the end are searched for loops, which last until the reply is cut off."""


def find_violations(
    text: str, *, calls: int = 0, names: Collection[str] = (), tokens: Collection[str] = ()
) -> list[Detection]:
    """Detections of leak, template, raw_call, empty, markdown and loop. `names`: the tools that were sent."""
    begins = text[:MAX_CHARS]
    return [
        *find_leaks(begins),
        *find_broken_template(begins, tokens),
        *find_raw_calls(begins, names),
        *find_empty(begins, calls=calls),
        *find_markdown(text[:MAX_MARKDOWN_CHARS]),
        *find_loops(text[-MAX_LOOP_CHARS:]),
    ]


_CANNOT: Final = r"(?:can(?:['’]t|not| not)|am (?:not able|unable)|['’]m (?:not able|unable)|(?:am|['’]m) not (?:allowed|permitted|programmed|designed)|don['’]t have (?:the ability|access|a way|any way)|do not have (?:the ability|access|a way|any way)|won['’]t be able|wouldn['’]t be able)"
_IDIOMS: Final = (
    r"(?! (?:wait|help but|stress|thank|recommend (?:it|that|this|them) enough|say enough|believe|imagine|agree more|complain|"
    r"go wrong|lie\b|argue|hear you|see why|think of (?:a|any)|overstate|stand))"
)
_PHRASES: Final = (
    re.compile(rf"\bI {_CANNOT}{_IDIOMS}", re.IGNORECASE),
    re.compile(rf"\bI{_CANNOT}{_IDIOMS}", re.IGNORECASE),  # I'm unable
    re.compile(r"\bI(?: won['’]t| will not| would rather not|['’]d rather not| must decline| have to decline) (?:do|help|answer|discuss|provide|share|say|tell|give|engage|talk)?\b", re.IGNORECASE),
    re.compile(r"\bI(?:['’]m| am) (?:sorry|afraid),? (?:but )?(?:I (?:can|don|won|am not|do not|cannot)|that(?:['’]s| is) (?:beyond|not something))", re.IGNORECASE),
    re.compile(r"\b(?:that(?:['’]s| is) (?:beyond (?:me|what I)|not something I can|outside (?:of )?what I|too much for me))", re.IGNORECASE),
    re.compile(r"\bas an (?:AI|assistant)(?: \w+){0,3},? I (?:can|don|do not|am not|cannot|have no)", re.IGNORECASE),
    re.compile(r"\bI(?:['’]m| am) just (?:an AI|a (?:language model|voice assistant|computer|program))\b", re.IGNORECASE),
    re.compile(r"\b(?:consult|talk to|speak (?:to|with)) (?:a|your) (?:doctor|lawyer|professional|financial advis[eo]r)(?: instead)\b", re.IGNORECASE),
    re.compile(r"(?:ನನಗೆ|ನನ್ನಿಂದ)\s+(?:\S+\s+){0,4}?\S*(?:ಆಗುವುದಿಲ್ಲ|ಆಗಲ್ಲ|ಸಾಧ್ಯವಿಲ್ಲ|ಸಾಧ್ಯವಾಗುವುದಿಲ್ಲ|ಬರುವುದಿಲ್ಲ)"),
    re.compile(r"ಕ್ಷಮಿಸಿ,?\s+(?:\S+\s+){0,6}?\S*(?:ಆಗುವುದಿಲ್ಲ|ಆಗಲ್ಲ|ಸಾಧ್ಯವಿಲ್ಲ|ಸಾಧ್ಯವಾಗುವುದಿಲ್ಲ|ಹೇಳಲಾರೆ|ಮಾಡಲಾರೆ)"),
)  # fmt: skip


def find_refusal(text: str) -> list[Detection]:
    """At most one detection: the first phrase that declines."""
    matches = [match for match in (phrase.search(text) for phrase in _PHRASES) if match]
    if not matches:
        return []
    first = min(matches, key=lambda match: match.start())
    return [detection("refusal", "declines", text, *first.span())]


# A request that cannot be met is also declined by saying what is not known, or what is missing.
_NOT_KNOWN: Final = (
    re.compile(r"\bI \w+ can(?:['’]t|not)\b", re.IGNORECASE),
    re.compile(r"\bI(?: do not|[ ]?don['’]t|[ ]?didn['’]t| did not) (?:\w+ )?(?:know|have|see|hear)\b", re.IGNORECASE),
    re.compile(r"\bI(?:['’]m| am) (?:not sure|unsure|only able|afraid not)\b", re.IGNORECASE),
    re.compile(r"\bI have (?:no|neither)\b|\bI can only\b|\bI only\b|\bI lack\b", re.IGNORECASE),
    re.compile(r"\byou (?:have not|haven['’]t|did not|didn['’]t|never) (?:\w+ )?(?:told?|tell|said|say|given?|mentioned)\b", re.IGNORECASE),
    re.compile(r"\bthat(?:['’]s| is| was) (?:not possible|impossible|too much)\b|\b(?:is|are)(?:n['’]t| not) (?:available|possible|connected)\b", re.IGNORECASE),
    re.compile(r"\bno,? (?:sorry|I)\b|\bunfortunately\b", re.IGNORECASE),
    re.compile(r"ಗೊತ್ತಿಲ್ಲ|ತಿಳಿದಿಲ್ಲ|ಸಾಧ್ಯವಿಲ್ಲ|ಆಗುವುದಿಲ್ಲ|ಆಗಲ್ಲ|ಇಲ್ಲ"),
)  # fmt: skip
# Said as if it were done or known, whatever else is said.
_CLAIMED: Final = re.compile(
    r"\b(?:I(?:['’]ve| have)|I(?:['’]m| am) now|I(?:['’]ll| will)) (?:\w+ )?(?:set|turn(?:ed)?|sent|send|call(?:ed|ing)?|play(?:ed|ing)?|add(?:ed)?|book(?:ed)?"
    r"|order(?:ed)?|remind(?:ed)?|lock(?:ed)?|start(?:ed)?|switch(?:ed)?)\b",
    re.IGNORECASE,
)


def find_everyday_fault(
    text: str, expect: Mapping[str, Any], *, calls: int = 0, tools: Collection[str] = (), reasoning: str = ""
) -> list[Detection]:
    """At most one detection. Kinds of its own: call, claimed (reported as done), not_declined."""
    if calls:
        return [Detection("everyday", "call", 0, 0, f"{calls} made where no tool serves")]
    faults = find_violations(text, names=tools)
    if reasoning.strip():
        faults = find_leaks("", reasoning=reasoning)
    if not faults and "answer" in expect:
        faults = find_wrong_answer(text, expect["answer"])
    if not faults and expect.get("declines"):
        faults = _undeclined(text)
    return faults[:1]


def _undeclined(text: str) -> list[Detection]:
    if claim := _CLAIMED.search(text):
        return [Detection("everyday", "claimed", *claim.span(), claim[0])]
    if find_refusal(text) or any(phrase.search(text) for phrase in _NOT_KNOWN):
        return []
    return [Detection("everyday", "not_declined", 0, len(text), text[:80])]
