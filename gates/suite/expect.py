"""What a case expects of its reply: the forms it can take, their check against the tools, and the match.

An accepted value of an argument is any JSON value, which has to be equal (text without regard to
case, spaces and punctuation; 5 is 5.0; true is not 1), or one of two forms, at any depth:

    {"has": ["priya", "trip|journey"]}    a text in which each of these begins a word, in any order
    {"one_of": [2, "two"]}                any of these; "" among them: the key may be absent

A query, a reminder's text or a message has no single right wording, so `has` names what must be in it.
Pure. What is wrong with a call is told in the words of the Berkeley leaderboard's checker
(gorilla, bfcl_eval/eval_checker/ast_eval/ast_checker.py): wrong_name, wrong_count, missing, unexpected,
value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, Final

from jsonschema import Draft202012Validator

from gates.suite.phrases import normal

ABSENT: Final = ""  # in a list of accepted values: the argument may be left out
SCRIPTS: Final = ("Latn", "Knda")

# The gates there are, and the field of `expect` that a gate cannot judge without.
NEEDS: Final[Mapping[str, str | None]] = {
    "leak": None, "raw_call": None, "empty": None, "no_markdown": None, "loop": None, "speakable": None,
    "tools": "calls", "factual": "answer", "reasoning": "answer", "verbosity": "max_seconds",
    "script": "script",
}  # fmt: skip

Call = tuple[str, Mapping[str, Any]]
"""A call as it was made: a name, and arguments parsed from JSON."""


# ------------------------------------------------------------------------------------------- match


def accepts(accepted: Sequence[Any], value: Any) -> bool:
    """Whether an argument's value is one of the accepted ones."""
    return any(_fits(want, value) for want in accepted)


def _fits(want: Any, value: Any) -> bool:
    if isinstance(want, Mapping):
        if want.keys() == {"has"}:
            return isinstance(value, str) and _has(normal(value), want["has"])
        if want.keys() == {"one_of"}:
            return accepts(want["one_of"], value)
        return isinstance(value, Mapping) and _same_keys(want, value)
    if isinstance(want, list):
        return isinstance(value, list) and len(want) == len(value) and all(map(_fits, want, value))
    if isinstance(want, str) and isinstance(value, str):
        return normal(want) == normal(value)
    return isinstance(want, bool) == isinstance(value, bool) and bool(want == value)


def _has(text: str, parts: Sequence[str]) -> bool:
    """Each part, or one of its alternatives, begins a word of a normalised text."""
    return all(any(f" {normal(word)}" in f" {text}" for word in part.split("|")) for part in parts)


def _same_keys(want: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    known = all(key in want and _fits(want[key], value[key]) for key in value)
    return known and all(key in value or _may_be_absent(want[key]) for key in want)


def _may_be_absent(want: Any) -> bool:
    return isinstance(want, Mapping) and want.keys() == {"one_of"} and ABSENT in want["one_of"]


def mismatch(expected: Sequence[Mapping[str, Any]], made: Sequence[Call]) -> str | None:
    """Why calls are not the expected ones, in any order; None when they are."""
    if len(expected) != len(made):
        return f"wrong_count: {len(made)} calls {_names(made)}, expected {len(expected)}"
    if any(_all_right(expected, order) for order in permutations(made)):
        return None
    unmet = (want for want in expected if all(_wrong(want, call) for call in made))
    want = next(unmet, expected[0])
    faults = [(_wrong(want, call), call[0]) for call in made]
    told = next((why for why, name in faults if name == want["name"]), faults[0][0])
    return told or "wrong_count: one call stands for two of the expected"


def _all_right(expected: Sequence[Mapping[str, Any]], made: Sequence[Call]) -> bool:
    return all(_wrong(want, call) is None for want, call in zip(expected, made, strict=True))


def _names(made: Sequence[Call]) -> str:
    return f"({', '.join(name for name, _ in made)})" if made else ""


def _wrong(want: Mapping[str, Any], call: Call) -> str | None:
    name, arguments = call
    if name != want["name"]:
        return f"wrong_name: {name}, expected {want['name']}"
    for key, accepted in want["arguments"].items():
        if key not in arguments and ABSENT not in accepted:
            return f"missing: {name} has no {key}"
        if key in arguments and not accepts(accepted, arguments[key]):
            return f"value: {name}.{key} is {arguments[key]!r:.120}"
    odd = sorted(arguments.keys() - want["arguments"].keys())
    return f"unexpected: {name} has {', '.join(odd)}" if odd else None


# ------------------------------------------------------------------------------------------- check


def problems(
    expect: Mapping[str, Any], gates: Sequence[str], tools: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """(field, what is wrong with it) for everything that would make the expectation unjudgeable."""
    needed = {NEEDS[gate] for gate in gates} - {None}
    for field in sorted(expect.keys() - needed, key=str):
        yield f"expect.{field}", "no gate of this case judges it"
    for field in sorted(str(f) for f in needed - expect.keys()):
        yield f"expect.{field}", "is missing, and a gate of this case needs it"
    for field in expect.keys() & needed:
        yield from _CHECKS[field](expect[field], tools)


def _calls(value: Any, tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    if not tools:
        yield "tools", "are missing; the tools gate asks nothing of a model that has none"
    if not isinstance(value, list):
        yield "expect.calls", "must be a list of calls; [] means that none may be made"
        return
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    for i, call in enumerate(value):
        yield from _call(call, f"expect.calls[{i}]", schemas)


def _call(call: Any, where: str, schemas: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        yield where, "must be an object with name and arguments"
    elif call["name"] not in schemas:
        yield f"{where}.name", f"{call['name']!r} is none of the case's tools: {', '.join(sorted(schemas))}"
    elif not isinstance(call["arguments"], dict):
        yield f"{where}.arguments", "must be an object of lists"
    else:
        yield from _arguments(call["arguments"], f"{where}.arguments", schemas[call["name"]])


def _arguments(
    arguments: Mapping[str, Any], where: str, schema: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    required, properties = schema.get("required", []), schema.get("properties", {})
    for key in sorted(set(required) - arguments.keys()):
        yield f"{where}.{key}", "is missing, and the tool requires it"
    for key, accepted in arguments.items():
        if key not in properties:
            yield f"{where}.{key}", f"is no parameter of the tool: {', '.join(sorted(properties))}"
        elif not isinstance(accepted, list) or not accepted:
            yield f"{where}.{key}", "must be a list of at least one accepted value"
        elif ABSENT in accepted and key in required:
            yield f"{where}.{key}", "may not be absent, for the tool requires it"
        else:
            yield from _values(accepted, f"{where}.{key}", properties[key])


def _values(accepted: Sequence[Any], where: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for value in accepted:
        if value == ABSENT and type(value) is str:
            continue
        if not _sound(value):
            yield where, f"{value!r:.80}: has takes texts, one_of takes values that are not all absent"
            continue
        for example in _examples(value):
            fault = next(Draft202012Validator(schema).iter_errors(example), None)
            if fault:
                yield where, f"{value!r:.80} does not fit the tool's schema: {fault.message:.120}"


def _sound(want: Any) -> bool:
    """Whether the forms in it are well formed."""
    if isinstance(want, list):
        return all(map(_sound, want))
    if not isinstance(want, Mapping):
        return True
    if want.keys() == {"has"}:
        parts = want["has"]
        return isinstance(parts, list) and all(isinstance(p, str) and p for p in parts)
    if want.keys() == {"one_of"}:
        choices = want["one_of"]
        return isinstance(choices, list) and any(c != ABSENT for c in choices) and all(map(_sound, choices))
    return all(map(_sound, want.values()))


def _examples(want: Any) -> Iterator[Any]:
    """Plain values that a form stands for: enough of them that each part of it occurs once."""
    if isinstance(want, Mapping) and want.keys() == {"has"}:
        yield " ".join(part.split("|")[0] for part in want["has"])
    elif isinstance(want, Mapping) and want.keys() == {"one_of"}:
        yield from (e for one in want["one_of"] if one != ABSENT for e in _examples(one))
    elif isinstance(want, Mapping):
        yield from _filled(dict.fromkeys(want), want.items())
    elif isinstance(want, list):
        yield from (list(e.values()) for e in _filled(dict.fromkeys(range(len(want))), enumerate(want)))
    else:
        yield want


def _filled(empty: dict[Any, Any], parts: Any) -> Iterator[dict[Any, Any]]:
    """One example with every part's first form, and one more for each further form of a part."""
    forms = {key: list(_examples(part)) for key, part in parts}
    first = empty | {key: found[0] for key, found in forms.items()}
    yield first
    yield from (first | {key: form} for key, found in forms.items() for form in found[1:])


def _answer(value: Any, _: object) -> Iterator[tuple[str, str]]:
    """`any` and `number` may both be there, and then either will do: "8" and a word for it."""
    allowed = {"any", "number", "tolerance"}
    if not isinstance(value, dict) or not value.keys() & {"any", "number"} or value.keys() - allowed:
        yield "expect.answer", "must be an object with any, or with number and tolerance, or both"
        return
    texts = value.get("any", ["-"])
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) and t.strip() for t in texts):
        yield "expect.answer.any", "must be a list of at least one text"
    if ("number" in value) != ("tolerance" in value):
        yield "expect.answer.tolerance", "belongs to number, and number needs it; 0 for an exact one"
    for key in ("number", "tolerance"):
        if not _is_number(value.get(key, 0)):
            yield f"expect.answer.{key}", "must be a number"


def _max_seconds(value: Any, _: object) -> Iterator[tuple[str, str]]:
    if not _is_number(value) or value <= 0:
        yield "expect.max_seconds", "must be a positive number of seconds"


def _script(value: Any, _: object) -> Iterator[tuple[str, str]]:
    if value not in SCRIPTS:
        yield "expect.script", f"must be one of {', '.join(SCRIPTS)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_CHECKS: Final = {"calls": _calls, "answer": _answer, "max_seconds": _max_seconds, "script": _script}
