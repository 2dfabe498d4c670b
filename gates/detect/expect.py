"""Compares tool calls with those that a case expects. Pure.

An accepted value of an argument is any JSON value (texts without case and punctuation; 5 equals 5.0; true is not 1), or at any depth
{"has": ["priya", "trip|journey"]}, a text in which each of these begins a word, or {"one_of": [2, "two"]}; "" among them: may be absent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gates.detect.normalize import normalize

ABSENT: Final = ""  # in a list of accepted values: the argument may be absent

Call = tuple[str, Mapping[str, Any]]
"""A tool call: its name, and its arguments parsed from JSON."""


def accepts(accepted: Sequence[Any], value: Any) -> bool:
    """Whether an argument's value is one of the accepted ones."""
    return any(_matches(want, value) for want in accepted)


def _matches(want: Any, value: Any) -> bool:
    if isinstance(want, Mapping):
        if want.keys() == {"has"}:
            return isinstance(value, str) and _has_words(normalize(value), want["has"])
        if want.keys() == {"one_of"}:
            return accepts(want["one_of"], value)
        return isinstance(value, Mapping) and _same_keys(want, value)
    if isinstance(want, list):
        return isinstance(value, list) and len(want) == len(value) and all(map(_matches, want, value))
    if isinstance(want, str) and isinstance(value, str):
        return normalize(want) == normalize(value)
    return isinstance(want, bool) == isinstance(value, bool) and bool(want == value)


def _has_words(text: str, parts: Sequence[str]) -> bool:
    """Whether each part, or one of its alternatives, begins a word of a normalized text."""
    return all(any(f" {normalize(word)}" in f" {text}" for word in part.split("|")) for part in parts)


def _same_keys(want: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    known = all(key in want and _matches(want[key], value[key]) for key in value)
    return known and all(key in value or _may_be_absent(want[key]) for key in want)


def _may_be_absent(want: Any) -> bool:
    return isinstance(want, Mapping) and want.keys() == {"one_of"} and ABSENT in want["one_of"]


def mismatch(expected: Sequence[Mapping[str, Any]], made: Sequence[Call]) -> str | None:
    """Why calls differ from the expected ones, in any order; None if they match."""
    if len(expected) != len(made):
        return f"wrong_count: {len(made)} calls {_names(made)}, expected {len(expected)}"
    if _all_met(expected, made):
        return None
    unmet = (want for want in expected if all(_call_mismatch(want, call) for call in made))
    want = next(unmet, expected[0])
    faults = [(_call_mismatch(want, call), call[0]) for call in made]
    why = next((why for why, name in faults if name == want["name"]), faults[0][0])
    return why or "wrong_count: one call stands for two of the expected"


def _all_met(expected: Sequence[Mapping[str, Any]], made: Sequence[Call]) -> bool:
    """Whether each call can stand for another of the expected: a perfect matching, by augmenting paths."""
    fits = [[i for i, call in enumerate(made) if _call_mismatch(want, call) is None] for want in expected]
    taken: dict[int, int] = {}  # a call to what it stands for

    def place(want: int, seen: set[int]) -> bool:
        for call in fits[want]:
            if call not in seen:
                seen.add(call)
                if call not in taken or place(taken[call], seen):
                    taken[call] = want
                    return True
        return False

    return all(place(want, set()) for want in range(len(expected)))


def _names(made: Sequence[Call]) -> str:
    return f"({', '.join(name for name, _ in made)})" if made else ""


def _call_mismatch(want: Mapping[str, Any], call: Call) -> str | None:
    name, arguments = call
    if name != want["name"]:
        return f"wrong_func_name: {name}, expected {want['name']}"
    for key, accepted in want["arguments"].items():
        if key not in arguments and ABSENT not in accepted:
            return f"missing_required: {name} has no {key}"
        if key in arguments and not accepts(accepted, arguments[key]):
            return f"value_error: {name}.{key} is {arguments[key]!r:.120}"
    odd = sorted(arguments.keys() - want["arguments"].keys())
    return f"unexpected_param: {name} has {', '.join(odd)}" if odd else None
