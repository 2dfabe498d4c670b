"""The JSON Schema of a tool's arguments or of the reply: its shape, and the work that it causes in an engine. Pure.

What a keyword means is left to the engine. A keyword of the wrong JSON type is refused here, where engines differ: one
answers 400, another 500, a third ignores it. A schema whose few bytes keep an engine busy for minutes is refused, too:
llama.cpp turns it into a grammar and follows every alternative that the text so far may belong to, in its only loop, and
goes on when the caller has left. One walk, which follows references, bounds schemas, depth, alternatives and repetitions.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import field

from app.api.strict_json import MAX_NODES, Budget
from app.stream.schema import resolve

MAX_DEPTH = 128
"""Deepest nesting of schemas with references followed. OpenAI takes 10 levels of objects."""
MAX_OPTIONAL = 128
"""Properties of one object that are not required. llama.cpp's work grows with their cube: 4 s for 1,200, over a minute for 5,000."""
MAX_WAYS = 1024
"""Alternatives to which a text may belong at once. OpenAI takes 1,000 values of enums in a schema; 2,000 that are alike cost
llama.cpp 1.6 s of CPU, 9,000 more than callers wait."""
_COST_OF_CHOICES = 16
"""llama.cpp's work for a pattern grows with the square of the parts that may be skipped: 25 branches in a loop cost others 0.2 s,
90 stop the engine."""


class SchemaError(ValueError):
    """The value is not a schema; the message says why."""

    code = "invalid_value"


class SchemaTooLarge(SchemaError):
    """The schemas of a request are more than an engine is given."""

    code = "schema_too_large"


def check_schema(schema: Any, budget: Budget) -> None:
    """Raises SchemaError."""
    _Walk(schema, budget).visit(_converted(schema))


def check_format(form: dict[str, Any], budget: Budget) -> None:
    """Check the schema in `response_format` (chat) or `text.format` (Responses), if it has one. Raises SchemaError."""
    for holder in (form, form.get("json_schema")):
        if isinstance(holder, dict) and holder.get("schema") is not None:
            check_schema(holder["schema"], budget)


class _Schema(msgspec.Struct, rename="camel"):
    """The keywords that are read, with the JSON types that they must have."""

    ref: str | None = field(name="$ref", default=None)
    type: str | list[str] | None = None
    pattern: Any = None
    enum: list[Any] | None = None
    required: list[Any] | None = None
    any_of: "list[_Node] | None" = None
    one_of: "list[_Node] | None" = None
    all_of: "list[_Node] | None" = None
    prefix_items: "list[_Node] | None" = None
    properties: "dict[str, _Node] | None" = None
    pattern_properties: "dict[str, _Node] | None" = None
    dependent_schemas: "dict[str, _Node] | None" = None
    defs: "dict[str, _Node] | None" = field(name="$defs", default=None)
    definitions: "dict[str, _Node] | None" = None
    items: "_Node | list[_Node] | None" = None
    additional_properties: "_Node | None" = None
    property_names: "_Node | None" = None
    contains: "_Node | None" = None
    negated: "_Node | None" = field(name="not", default=None)
    condition: "_Node | None" = field(name="if", default=None)
    then: "_Node | None" = None
    otherwise: "_Node | None" = field(name="else", default=None)

    def parts(self) -> Iterator["_Node"]:
        """The schemas in this one, without the alternatives of a union. Those of `allOf` are merged into one object."""
        for named in (self.properties, self.pattern_properties, self.dependent_schemas):
            yield from (named or {}).values()
        for listed in (self.all_of, self.prefix_items, self.items):
            yield from listed if isinstance(listed, list) else () if listed is None else (listed,)
        singles = (self.additional_properties, self.property_names, self.contains, self.negated)
        for single in (*singles, self.condition, self.then, self.otherwise):
            yield from () if single is None else (single,)


_Node = _Schema | bool


def _converted(value: Any) -> _Node:
    """Raises SchemaError."""
    try:
        found: _Node = msgspec.convert(value, type=_Node)
    except msgspec.ValidationError as error:
        raise SchemaError(str(error)[:300]) from None
    return found


def _type(schema: _Node) -> str | None:
    """The one type that texts of this schema have, if it says one."""
    return schema.type if isinstance(schema, _Schema) and isinstance(schema.type, str) else None


class _Found(NamedTuple):
    """ways: alternatives to which a text of a schema may belong at once. back: the outermost open reference that it leads to."""

    ways: float = 1
    back: int = MAX_DEPTH


class _Walk:
    """Visits a schema with its references followed, each again wherever it stands, but not one that is open.

    Alternatives multiply with those of their parts. A text may go through a union as often as it likes if the union leads
    back to itself; so the alternatives that lead back must differ in their type.
    """

    def __init__(self, root: Any, budget: Budget) -> None:
        self._root, self._budget = root, budget
        self._there: dict[str, _Node] = {}

    def visit(self, schema: _Node, opened: tuple[str, ...] = (), depth: int = 0) -> _Found:
        """Raises SchemaError."""
        if isinstance(schema, bool):
            return _Found()
        self._charge(schema, depth)
        alternatives = [*(schema.any_of or ()), *(schema.one_of or ())]
        unions = [self.visit(one, opened, depth + 1) for one in alternatives]
        if schema.ref is not None:
            unions.append(self._follow(schema.ref, opened, depth))
        parts = [self.visit(one, opened, depth + 1) for one in schema.parts()]
        ways: float = sum(one.ways for one in unions)
        if parts or not unions:
            ways += max(len(schema.enum or ()), 1) * max((one.ways for one in parts), default=1)
        back = [
            _type(one) for one, found in zip(alternatives, unions, strict=False) if found.back < len(opened)
        ]
        if ways > MAX_WAYS or (len(back) > 1 and (None in back or len(set(back)) < len(back))):
            raise SchemaTooLarge(
                "the schema has too many alternatives: list fewer values, refer to a schema once in a union, "
                "and give each alternative that leads back to its union a type of its own"
            )
        return _Found(ways, min((one.back for one in (*unions, *parts)), default=MAX_DEPTH))

    def _follow(self, reference: str, opened: tuple[str, ...], depth: int) -> _Found:
        if reference in opened:
            return _Found(back=opened.index(reference))
        if reference not in self._there:
            there = resolve(reference, self._root)
            self._there[reference] = _converted(there) if isinstance(there, dict) else True
        return self.visit(self._there[reference], (*opened, reference), depth + 1)

    def _charge(self, schema: _Schema, depth: int) -> None:
        """Raises SchemaTooLarge: the schema's own keywords, or all so far, are too much."""
        budget, required = self._budget, {name for name in schema.required or () if isinstance(name, str)}
        budget.nodes -= 1 + len(schema.enum or ())
        if budget.nodes < 0:
            why = f"the request's schemas have more than {MAX_NODES} values with their references followed"
            raise SchemaTooLarge(f"{why}: make them smaller")
        if depth > MAX_DEPTH:
            raise SchemaTooLarge(
                f"the schema has more than {MAX_DEPTH} levels with its references: make it flatter"
            )
        if isinstance(schema.type, list) and len(schema.type) > len(set(schema.type)):
            raise SchemaTooLarge("type names a type twice")
        if len((schema.properties or {}).keys() - required) > MAX_OPTIONAL:
            why = f"an object has more than {MAX_OPTIONAL} properties that are not required"
            raise SchemaTooLarge(f"{why}: list more of them in required")
        if isinstance(pattern := schema.pattern, str):
            budget.patterns -= pattern_cost(pattern) if len(pattern) <= budget.patterns else len(pattern)
            if budget.patterns < 0:
                why = "a regular expression is too complex: shorten it, or reduce nested and optional repetition"
                raise SchemaTooLarge(why)


_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?:<[=!]?|.)?)?)|(?P<close>\))|(?P<bar>\|)|(?P<times>[*+?]|\{[^{}]*\}?)|[\^$]"
    r"|(?P<one>\\.?|\[(?:[^\]\\]|\\.)*\]?|.)",
    re.DOTALL,
)
_BOUNDS = re.compile(r"\{\s*\+?(\d*)[^,]*(,?)\s*\+?(\d*)")
"""The bounds of a repetition as llama.cpp reads them (`std::stoi`)."""
_MANY = 1e12
"""Stands for every larger number: nested repetitions multiply."""


def pattern_cost(pattern: str) -> int:
    """The length of the pattern with its repetitions written out, and more for what may be skipped or chosen in a repetition.

    The result for an invalid expression is arbitrary. The work here is linear in the pattern.
    """
    groups, last = [_Cost()], _Cost()  # the open groups without their last parts, and that of the innermost
    for found in _TOKEN.finditer(pattern):
        kind = found.lastgroup
        if kind == "times":
            last = last.repeated(found[0])
            continue
        groups[-1] = groups[-1].plus(last)
        last = _Cost(length=1) if kind == "one" else _Cost(branches=1) if kind == "bar" else _Cost()
        if kind == "open":
            groups.append(_Cost())
        elif kind == "close" and len(groups) > 1:
            last = groups.pop()
    for group in groups:
        last = last.plus(group)
    return int(max(len(pattern), last.length + _COST_OF_CHOICES * last.choices**2))


class _Cost(NamedTuple):
    """Of a part of a pattern. branches: alternatives that do not repeat, and that cost nothing unless they do."""

    length: float = 0
    choices: float = 0
    branches: float = 0

    def plus(self, other: "_Cost") -> "_Cost":
        return _Cost(*(mine + its for mine, its in zip(self, other, strict=True)))

    def repeated(self, token: str) -> "_Cost":
        least, most = _bounds(token)
        copies = max(least if most is None else most, 1)
        choices, branches = self.choices, self.branches
        if copies > 1 or most is None:
            choices, branches = min((choices + branches) * copies, _MANY), 0
        return _Cost(min(self.length * copies, _MANY), choices + (least == 0), branches)


def _bounds(token: str) -> tuple[float, float | None]:
    """The minimum and maximum number of repetitions; None: unbounded."""
    if token in ("*", "+", "?"):
        return float(token == "+"), 1 if token == "?" else None
    found = _BOUNDS.match(token)
    assert found is not None
    least, comma, most = found.groups()
    first, last = (min(float(digits or 0), _MANY) for digits in (least, most))
    return first, first if not comma else last if most else None
