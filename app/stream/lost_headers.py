"""Headers of a thought or a call that lost their opening token: `to=functions.f <|constrain|>json<|message|>{…}`.

What is left of one begins with plain words, so it is looked for where a line begins, and is one only by the special token
behind the words. Sources: OpenAI's harmony format for gpt-oss, Kimi K2's template.
"""

import re
from collections.abc import Sequence
from itertools import product

from app.stream.tags import beginning

_BLANK = r"[ \t]{0,2}+"
_WORDS = r"[^<|\n]{0,80}+"
_TO = (*"to=", r"[\w.]{1,64}+", _BLANK, r"(?:(?<=[ \t])\w{1,16}+){0,1}+", _BLANK)
_BAR = r"\|"


def _token(name: str) -> tuple[str, ...]:
    return ("<", _BAR, *name, _BAR, ">")


_CHANNELS, _RECIPIENTS = ((*"commentary", _BLANK),), (_TO, tuple("json"))
_CHANNEL, _CONSTRAIN, _MESSAGE = (
    (*_token("channel"), _WORDS),
    (*_token("constrain"), _WORDS),
    _token("message"),
)
_HARMONY = [
    (*channel, *recipient, *first, *second, *_MESSAGE)
    for channel, recipient, first, second in product(
        ((), *_CHANNELS), ((), *_RECIPIENTS), ((), _CHANNEL), ((), _CONSTRAIN)
    )
    if channel or recipient is _TO
]
"""Every form, for what may become one; `_WHOLE` says the same of a whole one."""
HARMONY, CALL = "harmony", "call"
_CALLS = (
    ((*"functions.", r"[\w-]{1,64}+", ":{0,1}+", r"\d{0,4}+"), _token("tool_call_argument_begin")),  # Kimi K2
    (tuple("function"), ("<", "[|\uff5c]", *"tool", "[\u2581_ ]", *"sep", "[|\uff5c]", ">")),  # DeepSeek V3
)
"""Words before a token that begins the arguments, which is a tag of its own."""


def _one_of(*rows: Sequence[str]) -> str:
    return f"(?:{'|'.join(map(''.join, rows))})"


_OF_CALLS = "|".join(f"{''.join(words)}(?={''.join(token)})" for words, token in _CALLS)
_WHOLE = (
    rf"(?P<{HARMONY}>(?:{_one_of(*_CHANNELS)}{_one_of(*_RECIPIENTS)}?|{_one_of(_TO)})"
    rf"{_one_of(_CHANNEL)}?{_one_of(_CONSTRAIN)}?{_one_of(_MESSAGE)})|(?P<{CALL}>{_OF_CALLS})"
)
_PART = beginning(*_HARMONY, *((*words, *token) for words, token in _CALLS))
_FIRST = "".join(sorted({row[0] for row in (*_HARMONY, *(words for words, _ in _CALLS))}))
_OF_LINE = rf"(?P<head>(?=[{_FIRST}])(?:{_WHOLE}|(?P<part>{_PART})\Z))"
OF_TEXT = re.compile(rf"(?:\A[\s}},;]*+|\n[^\S\n]*+){_OF_LINE}")
"""Finds one, or what may become one (`part`), where the text or a line in it begins."""
_MEANT = re.compile(
    r"to=functions\.|functions\.[\w-]{1,64}(?::\d{1,4}\Z|:?\d{0,4}<)|function<|[a-z \t]{1,32}(?:to=[\w. \t]{1,80})?<\|"
)


def is_meant(text: str) -> bool:
    """Whether the end of a reply that may have become a header was meant as one."""
    return _MEANT.match(text) is not None
