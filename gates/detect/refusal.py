"""Detects replies that decline: `find_refusal`. Pure; phrases in English and Kannada, without idioms ("I can't wait").

Meant for pairs: alone it says little, because an assistant without taxi access rightly says so.
"""

import re
from typing import Final

from gates.detect.detection import Detection, detection

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
