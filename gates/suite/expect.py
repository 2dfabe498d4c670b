"""What a case expects of its reply: validation against the case's tools, and matching. Pure.

An accepted value of an argument is any JSON value, compared for equality (texts without case, spaces
and punctuation; 5 equals 5.0; true does not equal 1), or one of two forms, at any depth:

    {"has": ["priya", "trip|journey"]}    a text in which each of these begins a word, in any order
    {"one_of": [2, "two"]}                any of these; "" among them: the key may be absent

`has` exists because a query, a reminder or a message has no single right wording. A mismatch is named
as in the Berkeley leaderboard's checker (gorilla, bfcl_eval/eval_checker/ast_eval/ast_checker.py):
wrong_name, wrong_count, missing, unexpected, value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from jsonschema import Draft202012Validator

from gates.suite.normalize import normalize

ABSENT: Final = ""  # in a list of accepted values: the argument may be absent
SCRIPTS: Final = ("Latn", "Knda")

# All gates, and the field of `expect` that each needs to judge a reply.
REQUIRED_FIELDS: Final[Mapping[str, str | None]] = {
    "leak": None, "raw_call": None, "empty": None, "no_markdown": None, "loop": None, "speakable": None,
    "tools": "calls", "factual": "answer", "reasoning": "answer", "verbosity": "max_seconds",
    "script": "script", "everyday": "everyday",
}  # fmt: skip

Call = tuple[str, Mapping[str, Any]]
"""A tool call: its name, and its arguments parsed from JSON."""


# ------------------------------------------------------------------------------------------- match


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
    """(field, problem) for everything that would make the expectation impossible to judge."""
    needed = {REQUIRED_FIELDS[gate] for gate in gates} - {None}
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
        if not _is_well_formed(value):
            yield where, f"{value!r:.80}: has takes texts, one_of takes values that are not all absent"
            continue
        for example in _examples(value):
            fault = next(Draft202012Validator(schema).iter_errors(example), None)
            if fault:
                yield where, f"{value!r:.80} does not fit the tool's schema: {fault.message:.120}"


def _is_well_formed(want: Any) -> bool:
    """Whether the `has` and `one_of` forms in a value are well formed."""
    if isinstance(want, list):
        return all(map(_is_well_formed, want))
    if not isinstance(want, Mapping):
        return True
    if want.keys() == {"has"}:
        parts = want["has"]
        return isinstance(parts, list) and all(isinstance(p, str) and p for p in parts)
    if want.keys() == {"one_of"}:
        choices = want["one_of"]
        return (
            isinstance(choices, list)
            and any(c != ABSENT for c in choices)
            and all(map(_is_well_formed, choices))
        )
    return all(map(_is_well_formed, want.values()))


def _examples(want: Any) -> Iterator[Any]:
    """Plain values that a form accepts, enough that each part of it occurs once."""
    if isinstance(want, Mapping) and want.keys() == {"has"}:
        yield " ".join(part.split("|")[0] for part in want["has"])
    elif isinstance(want, Mapping) and want.keys() == {"one_of"}:
        yield from (e for one in want["one_of"] if one != ABSENT for e in _examples(one))
    elif isinstance(want, Mapping):
        yield from _combinations(dict.fromkeys(want), want.items())
    elif isinstance(want, list):
        yield from (list(e.values()) for e in _combinations(dict.fromkeys(range(len(want))), enumerate(want)))
    else:
        yield want


def _combinations(empty: dict[Any, Any], parts: Any) -> Iterator[dict[Any, Any]]:
    """One example with the first variant of every part, and one more for each further variant."""
    forms = {key: list(_examples(part)) for key, part in parts}
    first = empty | {key: found[0] for key, found in forms.items()}
    yield first
    yield from (first | {key: form} for key, found in forms.items() for form in found[1:])


def _answer(value: Any, _: object) -> Iterator[tuple[str, str]]:
    """`any` and `number` may both be given; then one of them is enough ("8" or the word for it)."""
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


def _everyday(value: Any, tools: object) -> Iterator[tuple[str, str]]:
    """One form: `declines`, `says` or `answer`."""
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= {"declines", "says", "answer"}:
        yield "expect.everyday", "must be an object with one of declines, says and answer"
    elif "answer" in value:
        yield from _answer(value["answer"], tools)
    elif list(value.values()) != [True]:
        yield "expect.everyday", "declines and says take true"


def _max_seconds(value: Any, _: object) -> Iterator[tuple[str, str]]:
    if not _is_number(value) or value <= 0:
        yield "expect.max_seconds", "must be a positive number of seconds"


def _script(value: Any, _: object) -> Iterator[tuple[str, str]]:
    if value not in SCRIPTS:
        yield "expect.script", f"must be one of {', '.join(SCRIPTS)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_CHECKS: Final = {
    "calls": _calls, "answer": _answer, "max_seconds": _max_seconds, "script": _script, "everyday": _everyday,
}  # fmt: skip
