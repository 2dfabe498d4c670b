"""The JSON Schema of a tool's arguments or of the reply: its shape, its size, and the work that it causes in an engine. Pure.

What a keyword means is left to the engine. A keyword of the wrong JSON type is refused here, by name, where
engines differ: one answers 400, another 500, a third ignores it. So is a schema by which a few bytes keep an engine
busy for minutes: llama.cpp turns it into a grammar and follows every alternative that the text so far may belong to, in its
only loop, and goes on when the caller has left.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from app.api.strict_json import MAX_NODES, Budget
from app.stream.schema import resolve

_UNIONS = ("anyOf", "oneOf")
_LISTS = ("allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_DEFINITIONS = ("$defs", "definitions")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_KINDS: dict[str, tuple[type, str]] = {
    "$ref": (str, "a string"),
    **dict.fromkeys(("enum", "required", "examples"), (list, "an array")),
    **dict.fromkeys((*_UNIONS, *_LISTS), (list, "an array of schemas")),
    **dict.fromkeys((*_NAMED, *_DEFINITIONS), (dict, "an object of schemas")),
}
"""The JSON types of keywords, where engines differ."""

MAX_DEPTH = 64
"""Deepest nesting of JSON in a schema. OpenAI takes 10 levels of objects, two or three of JSON each."""
MAX_OPTIONAL = 128
"""Properties of one object that are not required. llama.cpp's work grows with their cube: 4 s for 1,200, over a minute for 5,000."""
MAX_WAYS = 1024
"""Alternatives to which a text may belong at once. OpenAI takes 1,000 values of enums in a schema; 2,000 that are alike cost
llama.cpp 1.6 s of CPU, 9,000 more than callers wait."""
_MAX_FOLLOWED = 128
"""Deepest nesting of schemas with references followed."""
_MAX_STEPS = 100_000
"""Schemas looked at to see which unions lead back to themselves."""
_COST_OF_CHOICES = 16
"""llama.cpp's work for a pattern grows with the square of the parts that may be skipped: 25 branches in a loop cost others 0.2 s,
90 stop the engine."""


class SchemaError(ValueError):
    """The value is not a schema; the message says why."""

    code = "invalid_value"


class SchemaTooLarge(SchemaError):
    """The schemas of a request have more values, levels or alternatives than an engine is given."""

    code = "schema_too_large"


def check_schema(schema: Any, budget: Budget) -> None:
    """Raises SchemaError."""
    _check_size(schema, budget)
    _Walk(schema).check()


def check_format(form: dict[str, Any], budget: Budget) -> None:
    """Check `response_format` (chat) or `text.format` (Responses), and the schema that it holds. Raises SchemaError."""
    _check_size(form, budget)
    named = form.get("json_schema")
    for holder in (form, named):
        if isinstance(holder, dict) and holder.get("schema") is not None:
            _Walk(holder["schema"]).check()


# Size.


def _check_size(schema: Any, budget: Budget) -> None:
    """Charge the budget for every value and pattern. Raises SchemaTooLarge."""
    level, depth = [schema], 0
    while level:
        budget.nodes -= len(level)
        depth += 1
        if budget.nodes < 0:
            raise SchemaTooLarge(
                f"the request's schemas have more than {MAX_NODES} values: make them smaller"
            )
        if depth > MAX_DEPTH:
            raise SchemaTooLarge(f"the schema has more than {MAX_DEPTH} levels: make it flatter")
        for node in level:
            if isinstance(node, dict):
                _check_object(node, budget)
        inside = (
            node.values() if isinstance(node, dict) else node
            for node in level
            if isinstance(node, dict | list)
        )
        level = list(chain.from_iterable(inside))


def _check_object(node: dict[str, Any], budget: Budget) -> None:
    """Properties that may be left out, types that are named twice, and the pattern."""
    kinds, properties, pattern = node.get("type"), node.get("properties"), node.get("pattern")
    if isinstance(kinds, list) and len(kinds) != len({str(kind) for kind in kinds}):
        raise SchemaTooLarge("type names a type twice")
    if isinstance(properties, dict) and len(properties.keys() - _required(node)) > MAX_OPTIONAL:
        raise SchemaTooLarge(
            f"an object has more than {MAX_OPTIONAL} properties that are not required: list more of them in required"
        )
    if isinstance(pattern, str):
        budget.patterns -= pattern_cost(pattern) if len(pattern) <= budget.patterns else len(pattern)
        if budget.patterns < 0:
            raise SchemaTooLarge(
                "a regular expression is too complex: shorten it, or reduce nested and optional repetition"
            )


def _required(node: dict[str, Any]) -> set[str]:
    required = node.get("required")
    return {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()


_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?:<[=!]?|.)?)?)|(?P<close>\))|(?P<bar>\|)|(?P<times>[*+?]|\{[^{}]*\}?)|[\^$]"
    r"|(?P<one>\\.?|\[(?:[^\]\\]|\\.)*\]?|.)",
    re.DOTALL,
)
_BOUNDS = re.compile(r"\{\s*\+?(\d*)[^,]*(,?)\s*\+?(\d*)")
"""The bounds of a repetition as llama.cpp reads them (`std::stoi`)."""
_MAX_BOUND = 1 << 40
"""Stands for every larger number, because nested repetitions multiply."""


def pattern_cost(pattern: str) -> int:
    """The length of the pattern with its repetitions written out, and more for what may be skipped or chosen in a repetition.

    The result for an invalid expression is arbitrary. The work here is linear in the pattern.
    """
    groups: list[_Cost] = []
    whole, last = _Cost(), _Cost()  # the open group, without its last part
    for found in _TOKEN.finditer(pattern):
        kind = found.lastgroup
        if kind == "times":
            last = last.repeated(found[0])
            continue
        whole, last = whole.plus(last), _Cost()
        if kind == "open":
            groups.append(whole)
            whole = _Cost()
        elif kind == "bar":
            whole = whole.plus(_Cost(branches=1))
        elif kind == "close" and groups:
            whole, last = groups.pop(), whole
        elif kind == "one":
            last = _Cost(length=1)
    for group in (last, *groups):
        whole = whole.plus(group)
    return max(len(pattern), whole.length + _COST_OF_CHOICES * whole.choices**2)


class _Cost(NamedTuple):
    """Of a part of a pattern. branches: alternatives that do not repeat, and that cost nothing unless they do."""

    length: int = 0
    choices: int = 0
    branches: int = 0

    def plus(self, other: "_Cost") -> "_Cost":
        return _Cost(*(min(mine + its, _MAX_BOUND) for mine, its in zip(self, other, strict=True)))

    def repeated(self, token: str) -> "_Cost":
        least, most = _SIGNS.get(token) or _bounds(token)
        copies = max(least, 1) if most is None else most
        length, choices, branches = self
        if copies > 1 or most is None:
            choices, branches = (choices + branches) * copies, 0
        skips = 1 if least == 0 else 0
        return _Cost(min(length * max(copies, 1), _MAX_BOUND), min(choices + skips, _MAX_BOUND), branches)


_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def _bounds(token: str) -> tuple[int, int | None]:
    """The minimum and maximum number of repetitions; None: unbounded."""
    found = _BOUNDS.match(token)
    assert found is not None
    least, comma, most = found.groups()
    if not comma:
        return _number(least), _number(least)
    return _number(least), _number(most) if most else None


def _number(digits: str) -> int:
    return int(digits or 0) if len(digits) <= 9 else _MAX_BOUND


# Alternatives.


class _Walk:
    """Checks the keywords of every schema, counts its alternatives, references followed, and looks for unions that lead back
    to themselves.

    Alternatives multiply with those of their parts. A text may go through a union as often as it likes if the union leads
    back to itself; so two of its alternatives that do must not begin alike.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._ways: dict[int, int] = {}
        self._unions: list[dict[str, Any]] = []
        self._has_references = False
        self._steps = _MAX_STEPS

    def check(self) -> None:
        """Raises SchemaError."""
        self._count(self._root, 0)
        for union in self._unions if self._has_references else ():
            begun: list[tuple[str, ...]] = []
            for leaf in self._leaves(union, ()):
                if self._leads(leaf, union):
                    new = _beginning(leaf)
                    if any(new[: len(old)] == old[: len(new)] for old in begun):
                        raise _too_many_ways()
                    begun.append(new)

    def _count(self, schema: Any, depth: int) -> int:
        """How many alternatives a text of this schema may belong to at once; one that is being counted counts once."""
        if isinstance(schema, bool) or id(schema) in self._ways:
            return self._ways.get(id(schema), 1)
        if depth > _MAX_FOLLOWED:
            raise SchemaTooLarge(f"the schema has more than {_MAX_FOLLOWED} levels with its references")
        _check_keywords(schema)
        self._ways[id(schema)] = 1
        alternatives, parts = list(self._alternatives(schema)), list(_parts(schema))
        for key in _DEFINITIONS:  # what nothing refers to is checked, too
            for one in (schema.get(key) or {}).values():
                self._count(one, depth + 1)
        inside = [self._count(part, depth + 1) for part in parts]
        ways = sum(self._count(one, depth + 1) for one in alternatives)
        if parts or not alternatives:
            ways += max(len(schema.get("enum") or ()), 1) * max(inside, default=1)
        if ways > MAX_WAYS:
            raise _too_many_ways()
        if alternatives:
            self._unions.append(schema)
        self._ways[id(schema)] = ways
        return ways

    def _leaves(self, schema: Any, path: tuple[int, ...]) -> Iterator[dict[str, Any]]:
        """What a text of this schema may be, unions in unions resolved; each as often as it is named."""
        if not isinstance(schema, dict) or id(schema) in path:
            return
        self._step()
        alternatives = list(self._alternatives(schema))
        for one in alternatives:
            yield from self._leaves(one, (*path, id(schema)))
        if not alternatives or any(True for _ in _parts(schema)):
            yield schema

    def _leads(self, leaf: dict[str, Any], union: dict[str, Any]) -> bool:
        """Whether what is inside this alternative leads back to the union."""
        waiting, seen = list(_parts(leaf)), set[int]()
        while waiting:
            schema = waiting.pop()
            if schema is union:
                return True
            if isinstance(schema, dict) and id(schema) not in seen:
                self._step()
                seen.add(id(schema))
                waiting += [*_parts(schema), *self._alternatives(schema)]
        return False

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _too_many_ways()

    def _alternatives(self, schema: dict[str, Any]) -> Iterator[Any]:
        if (reference := schema.get("$ref")) is not None:
            self._has_references = True
            if isinstance(there := resolve(reference, self._root), dict):
                yield there
        for key in _UNIONS:
            yield from schema.get(key) or ()


def _too_many_ways() -> SchemaTooLarge:
    return SchemaTooLarge(
        "the schema has too many alternatives that begin alike: list fewer values, give each alternative "
        "a first required property with a value of its own, and refer to a schema once in a union"
    )


def _check_keywords(schema: Any) -> None:
    """Raises SchemaError: it has not the shape of a schema."""
    if not isinstance(schema, dict):
        raise SchemaError("every schema in it must be an object")
    kind = schema.get("type") or ""
    if not all(isinstance(name, str) for name in (kind if isinstance(kind, list) else [kind])):
        raise SchemaError("type must be a string or an array of strings")
    for key in schema.keys() & _KINDS.keys():
        wanted, name = _KINDS[key]
        if schema[key] is not None and not isinstance(schema[key], wanted):
            raise SchemaError(f"{key} must be {name}")


def _parts(schema: dict[str, Any]) -> Iterator[Any]:
    """The schemas in this one, without the alternatives of a union. Those of `allOf` are merged into one object."""
    for key in _NAMED:
        yield from (schema.get(key) or {}).values()
    for key in (*_LISTS, *_SINGLE):
        if (listed := schema.get(key)) is not None:
            yield from listed if isinstance(listed, list) else (listed,)


def _beginning(node: dict[str, Any]) -> tuple[str, ...]:
    """How the schema's texts begin: their type; an object's first required property, and its value if it is constant."""
    properties = node.get("properties")
    if not isinstance(properties, dict):
        if node.get("type") == "object" or "additionalProperties" in node:
            return ("object",)
        is_array = node.get("type") == "array" or "items" in node or "prefixItems" in node
        return ("array",) if is_array else ("value",)
    required = _required(node)
    first = next((name for name in properties if name in required), None)
    if first is None:
        return ("object",)
    value = properties[first] if isinstance(properties[first], dict) else {}
    listed = value.get("enum")
    const = listed[0] if isinstance(listed, list) and len(listed) == 1 else value.get("const")
    return ("object", first, str(const)) if isinstance(const, str | int) else ("object", first)
