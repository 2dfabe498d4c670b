"""The JSON Schema of a tool's arguments or of the reply: its shape, and the work that it causes in an engine. Pure.

What a keyword means is left to the engine. A keyword of the wrong JSON type is refused here, where engines differ: one
answers 400, another 500, a third ignores it. A schema whose few bytes keep an engine busy for minutes is refused, too:
llama.cpp turns it into a grammar and follows every alternative that the text so far may belong to, in its only loop, and
goes on when the caller has left. One walk, which follows references, bounds schemas, depth, alternatives and repetitions.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from app.api.strict_json import MAX_NODES, Budget
from app.stream.schema import resolve

MAX_DEPTH = 128
"""Deepest nesting of schemas with references followed. OpenAI takes 10 levels of objects."""
MAX_OPTIONAL = 128
"""Properties of one object that are not required. llama.cpp's work grows with their cube: 4 s for 1,200, over a minute for 5,000."""
MAX_ALTERNATIVES = 1024
"""Values of enums and alternatives of unions in a schema, with references followed. OpenAI takes 1,000; 2,000 that are alike cost
llama.cpp 1.6 s of CPU, 9,000 more than callers wait."""
_COST_OF_CHOICES = 16
"""llama.cpp's work for a pattern grows with the square of the parts that may be skipped: 25 branches in a loop cost others 0.2 s,
90 stop the engine."""
TOO_LARGE = "schema_too_large"

_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_SINGLE = ("additionalProperties", "propertyNames", "contains", "not", "if", "then", "else")
_SHAPES: Final[Mapping[str, tuple[type, ...]]] = {
    "$ref": (str,),
    "type": (str, list),
    **dict.fromkeys(("enum", "required", "anyOf", "oneOf", "allOf", "prefixItems"), (list,)),
    **dict.fromkeys(_NAMED, (dict,)),
    **dict.fromkeys(_SINGLE, (dict, bool)),
    "items": (dict, bool, list),
}
"""The keywords that are read, with the types that they must have. Null is as if it were absent."""
_WORDS: Final[Mapping[type, str]] = {str: "a string", list: "an array", dict: "an object", bool: "a boolean"}
_TYPES = 7  # of JSON
_NO_PARTS = ("$ref", "type", "enum", "required", "$defs", "definitions")


def check_schema(schema: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """The schema, which is charged to the `Budget` in the validation's context.

    Raises PydanticCustomError: it is not a schema, or the schemas of the request are more than an engine is given.
    """
    _Walk(schema, info.context or Budget()).visit(schema)
    return schema


def check_format(form: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Check the schema in `response_format` (chat) or `text.format` (Responses), if it has one, as `check_schema` does."""
    for holder in (form, form.get("json_schema")):
        if isinstance(holder, dict) and holder.get("schema") is not None:
            check_schema(holder["schema"], info)
    return form


def _fault(why: str, code: str = TOO_LARGE) -> PydanticCustomError:
    return PydanticCustomError(code, "{why}", {"why": why})


def _parts(schema: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The alternatives of its unions, and its other schemas: those of `allOf` are merged into one object."""
    alternatives: list[Any] = []
    others: list[Any] = []
    for name, types in _SHAPES.items():  # the schema's other keys are not charged
        if (value := schema.get(name)) is None:
            continue
        if not isinstance(value, types):
            words = " or ".join(_WORDS[one] for one in types)
            raise _fault(f"{name} of a schema must be {words}", "invalid")
        parts: Any = value
        if name in ("anyOf", "oneOf"):
            alternatives += parts
        elif name not in _NO_PARTS:
            others += parts.values() if name in _NAMED else parts if isinstance(parts, list) else [parts]
    return alternatives, others


class _Walk:
    """Visits a schema with its references followed, each again wherever it stands, but not one that is open.

    A text may go through a union as often as it likes if the union leads back to itself; so the alternatives that lead back
    must differ in their type.
    """

    def __init__(self, root: Any, budget: Budget) -> None:
        self._root, self._budget, self._alternatives = root, budget, MAX_ALTERNATIVES
        self._there: dict[str, Any] = {}

    def visit(self, schema: Any, opened: tuple[str, ...] = (), depth: int = 0) -> int:
        """The place in `opened` of the outermost reference that it leads back to. Raises PydanticCustomError."""
        if isinstance(schema, bool):
            return MAX_DEPTH
        if not isinstance(schema, dict):
            raise _fault("a schema must be an object, true or false", "invalid")
        alternatives, others = _parts(schema)
        self._charge(schema, len(alternatives), depth)
        found = [self.visit(one, opened, depth + 1) for one in alternatives]
        kinds = [one.get("type") for one, back in zip(alternatives, found, strict=True) if back < len(opened)]
        if len(kinds) > 1 and len({kind for kind in kinds if isinstance(kind, str)}) < len(kinds):
            raise _fault(
                "alternatives of a union that contains itself must each state a type, and no two the same"
            )
        found += [self.visit(one, opened, depth + 1) for one in others]
        if reference := schema.get("$ref"):
            found.append(self._follow(reference, opened, depth))
        return min(found, default=MAX_DEPTH)

    def _follow(self, reference: str, opened: tuple[str, ...], depth: int) -> int:
        if reference in opened:
            return opened.index(reference)
        if reference not in self._there:
            there = resolve(reference, self._root)
            self._there[reference] = there if isinstance(there, dict) else True
        return self.visit(self._there[reference], (*opened, reference), depth + 1)

    def _charge(self, schema: dict[str, Any], alternatives: int, depth: int) -> None:
        """Raises PydanticCustomError: the schema's own keywords, or all so far, are too much."""
        budget, kinds = self._budget, schema.get("type")
        values, required = schema.get("enum") or (), schema.get("required") or ()
        budget.nodes -= 1 + len(values) + len(required)
        if budget.nodes < 0:
            raise _fault(
                f"the request's schemas have more than {MAX_NODES} schemas and values, with references followed"
            )
        self._alternatives -= len(values) + alternatives
        if self._alternatives < 0:
            raise _fault(
                f"the schema has more than {MAX_ALTERNATIVES} values and alternatives, references followed"
            )
        if depth > MAX_DEPTH:
            raise _fault(f"the schema has more than {MAX_DEPTH} levels, references followed: make it flatter")
        if isinstance(kinds, list) and not all(isinstance(kind, str) for kind in kinds[:_TYPES]):
            raise _fault("type of a schema must be a string, or an array of strings", "invalid")
        if isinstance(kinds, list) and (len(kinds) > _TYPES or len(kinds) > len(set(kinds))):
            raise _fault("type of a schema names a type twice")
        optional = (schema.get("properties") or {}).keys() - {
            name for name in required if isinstance(name, str)
        }
        if len(optional) > MAX_OPTIONAL:
            raise _fault(f"an object has more than {MAX_OPTIONAL} optional properties: name some in required")
        if isinstance(pattern := schema.get("pattern"), str):
            budget.patterns -= pattern_cost(pattern) if len(pattern) <= budget.patterns else len(pattern)
            if budget.patterns < 0:
                raise _fault("a pattern is too complex: shorten it, or reduce nested and optional repetition")


_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?:<[=!]?|.)?)?)|(?P<close>\))|(?P<bar>\|)|(?P<times>[*+?]|\{[^{}]*\}?)|[\^$]"
    r"|(?P<one>\\.?|\[(?:[^\]\\]|\\.)*\]?|.)",
    re.DOTALL,
)
_BOUNDS = re.compile(r"\{\s*\+?(\d*)[^,]*(,?)\s*\+?(\d*)")  # as llama.cpp reads them (`std::stoi`)
_SIGNS = {"*": ("0", ",", ""), "+": ("1", ",", ""), "?": ("0", ",", "1")}
_MANY = 1e12  # stands for every larger number: nested repetitions multiply


def pattern_cost(pattern: str) -> int:
    """The length of the pattern with its repetitions written out, and more for what may be skipped or chosen in a repetition.

    The result for an invalid expression is arbitrary. It is read from its end, where a repetition stands before its part:
    the work here is linear in the pattern.
    """
    length = choices = 0.0
    # How often the part that comes next stands there, and whether in a repetition; the same of the innermost open group.
    copies, loops = group = 1.0, False
    outer: list[tuple[float, bool]] = []
    for found in reversed([*_TOKEN.finditer(pattern)]):
        kind = found.lastgroup
        if kind == "times":
            least, comma, most = _SIGNS.get(found[0]) or _BOUNDS.findall(found[0])[0]
            times = float((most or least if comma else least) or 0)
            choices += copies * (float(least or 0) == 0)
            copies = min(copies * max(times, 1), _MANY)
            loops = loops or times > 1 or (comma != "" and not most)
            continue
        if kind == "close":
            outer.append(group)
            group = copies, loops
        elif kind == "open" and outer:
            group = outer.pop()
        elif kind == "bar":
            choices += group[0] * group[1]
        elif kind == "one":
            length += copies
        copies, loops = group
    return int(max(len(pattern), length + _COST_OF_CHOICES * choices**2))
