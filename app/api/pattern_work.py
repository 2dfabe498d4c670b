"""Estimates the work that a regular expression in a JSON schema causes in an engine that generates by it. Pure.

llama.cpp turns a `pattern` into a grammar and tracks every possible parse of the text so far. 300 times `a?` in a
row, or `(a{0,100}){0,100}`, blocks its only loop for half a minute, and with it all replies. The estimate uses Glushkov's
automaton of the expression: the number of its positions (each character or class, repetitions written out), and the
largest number of successors of a position. In measurements the work grows at least with the square of the latter.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?:<[=!]?|.)?)?)|(?P<close>\))|(?P<bar>\|)|(?P<times>[*+?]|\{[^{}]*\}?)|[\^$]"
    r"|(?P<one>\\.?|\[(?:[^\]\\]|\\.)*\]?|.)",
    re.DOTALL,
)
_BOUND = re.compile(r"\s*\+?(\d*)")
"""The largest bound that llama.cpp reads (`std::stoi`)."""
_MOST = 1 << 40
"""Replaces every larger number, because nested repetitions multiply."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression: the number of its `positions` and of its possible `first` positions, and whether it may be empty.

    `after_last`: the largest number of successors, within the part, of a possible last position. `after`: of any position.
    """

    positions: int = 0
    first: int = 0
    may_be_empty: bool = True
    after_last: int = 0
    after: int = 0


_NOTHING = _Part()
_NEVER = _Part(may_be_empty=False)
_ONE = _Part(positions=1, first=1, may_be_empty=False)


def pattern_work(pattern: str) -> int:
    """The number of positions times the square of the most successors; at least the pattern's length.

    The result for an invalid expression is arbitrary. The work here is linear in the pattern.
    """
    choice, done, last = _NEVER, _NOTHING, _NOTHING  # alternatives before this one; this one; its last part
    groups: list[tuple[_Part, _Part]] = []
    for kind, token in _tokens(pattern):
        if kind == "times":
            last = _repeated(last, *_bounds(token))
            continue
        done = _joined(done, last)
        last = _NOTHING
        if kind == "open":
            groups.append((choice, done))
            choice, done = _NEVER, _NOTHING
        elif kind == "bar":
            choice, done = _either(choice, done), _NOTHING
        elif kind == "close" and groups:
            last = _either(choice, done)
            choice, done = groups.pop()
        elif kind == "one":
            last = _ONE
    whole = _either(choice, _joined(done, last))
    while groups:
        choice, done = groups.pop()
        whole = _either(choice, _joined(done, whole))
    return max(len(pattern), whole.positions * whole.after**2)


def _tokens(pattern: str) -> Iterator[tuple[str, str]]:
    for found in _TOKEN.finditer(pattern):
        yield found.lastgroup or "", found[0]


def _bounds(token: str) -> tuple[int, int | None]:
    """The minimum and maximum number of repetitions; None: unbounded."""
    if token in ("*", "+", "?"):
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token]
    least, comma, most = token.strip("{}").partition(",")
    if not comma:
        return _number(least), _number(least)
    return _number(least), _number(most) if most.strip() else None


def _number(text: str) -> int:
    found = _BOUND.match(text)
    digits = found[1] if found else ""
    return int(digits or 0) if len(digits) <= 9 else _MOST


def _joined(one: _Part, other: _Part) -> _Part:
    """The concatenation of two parts."""
    if not one.positions:
        return other
    if not other.positions:
        return one
    through = one.after_last + other.first
    return _Part(
        positions=one.positions + other.positions,
        first=one.first + (other.first if one.may_be_empty else 0),
        may_be_empty=one.may_be_empty and other.may_be_empty,
        after_last=max(other.after_last, through if other.may_be_empty else 0),
        after=max(one.after, other.after, through),
    )


def _either(one: _Part, other: _Part) -> _Part:
    return _Part(
        positions=one.positions + other.positions,
        first=one.first + other.first,
        may_be_empty=one.may_be_empty or other.may_be_empty,
        after_last=max(one.after_last, other.after_last),
        after=max(one.after, other.after),
    )


def _repeated(part: _Part, least: int, most: int | None) -> _Part:
    """A repetition; if `most` is None the last of `least` copies repeats without bound."""
    copies = max(least, 1) if most is None else most
    if copies == 0 or not part.positions:
        return _NOTHING
    again = min(part.after_last + part.first * (max(copies - 1, 1) if part.may_be_empty else 1), _MOST)
    goes_on = copies > 1 or most is None
    return _Part(
        positions=min(part.positions * copies, _MOST),
        first=min(part.first * (copies if part.may_be_empty else 1), _MOST),
        may_be_empty=part.may_be_empty or least == 0,
        after_last=again if goes_on else part.after_last,
        after=max(part.after, again) if goes_on else part.after,
    )
