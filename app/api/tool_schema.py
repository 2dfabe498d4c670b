"""The JSON Schema that a caller declares for a tool's arguments or for the reply: its shape and its size. Pure.

What a keyword means is left to the engine. A keyword of the wrong JSON type is refused here, by name, where
engines differ: one answers 400, another 500, a third ignores it. So is what a few bytes make an engine compute for
minutes: it does not stop when its caller leaves, and other callers wait.
"""

from collections.abc import Iterator
from typing import Any

from app.api.pattern_work import pattern_work
from app.api.schema_ways import has_many_ways
from app.api.strict_json import MAX_NODES, Budget

_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS = ("enum", "required", "examples")


MAX_DEPTH = 64
"""Deepest nesting of JSON in a schema. OpenAI takes 10 levels of objects, two or three of JSON each."""
MAX_OPTIONAL = 128
"""Properties of one object that are not required. llama.cpp's work grows with their cube: 4 s for 1,200, over a minute for 5,000."""


class SchemaError(ValueError):
    """The schema cannot be one; the message says why."""

    code = "invalid_value"


class SchemaTooLarge(SchemaError):
    """The schema, with the others of its request, has more values, levels or alternatives than an engine is given."""

    code = "schema_too_large"


def check_schema(schema: Any, budget: Budget) -> None:
    """Raises SchemaError. Looks at each value once."""
    check_size(schema, budget)
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend(_subschemas(node))
        elif not isinstance(node, bool):
            raise SchemaError("every schema in it must be an object")
    check_ways(schema)


def check_format(form: dict[str, Any], budget: Budget) -> None:
    """Check `response_format` (chat) or `text.format` (Responses): a schema, or an object that holds one.

    Raises SchemaTooLarge.
    """
    check_size(form, budget)
    named = form.get("json_schema")
    for schema in (form, form.get("schema"), named.get("schema") if isinstance(named, dict) else None):
        check_ways(schema)


def check_ways(schema: Any) -> None:
    """Raises SchemaTooLarge: an engine may have to follow too many of the schema's alternatives at once."""
    if has_many_ways(schema):
        raise SchemaTooLarge(
            "the schema has too many alternatives that begin alike: list fewer values and types, give each alternative "
            "a first required property with a value of its own, and refer to a schema once in a union"
        )


def check_size(schema: Any, budget: Budget) -> None:
    """Spend of the budget as much as the schema is large. Raises SchemaTooLarge."""
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
                _check_work(node, budget)
        level = [child for node in level for child in _children(node)]


def _check_work(node: dict[str, Any], budget: Budget) -> None:
    """Spend of the budget what a node's pattern makes an engine do. Raises SchemaTooLarge."""
    properties, required, pattern = node.get("properties"), node.get("required"), node.get("pattern")
    if isinstance(properties, dict) and len(properties) > MAX_OPTIONAL:
        needed = {name for name in required if _is_text(name)} if isinstance(required, list) else set()
        if len(properties.keys() - needed) > MAX_OPTIONAL:
            raise SchemaTooLarge(
                f"an object has more than {MAX_OPTIONAL} properties that are not required: list more of them in required"
            )
    if isinstance(pattern, str) and budget.patterns >= 0:
        # What is longer is too much without a look.
        budget.patterns -= max(len(pattern), pattern_work(pattern[: budget.patterns + 1]))
        if budget.patterns < 0:
            raise SchemaTooLarge(
                "the schemas' patterns can match in too many ways: write fewer repetitions in a row and inside one another"
            )


def _children(value: Any) -> Iterator[Any] | list[Any]:
    if isinstance(value, dict):
        return iter(value.values())
    return value if isinstance(value, list) else []


def _subschemas(node: dict[str, Any]) -> Iterator[Any]:
    kind = node.get("type")
    if kind is not None and not _is_text(kind) and not (isinstance(kind, list) and all(map(_is_text, kind))):
        raise SchemaError("type must be a string or an array of strings")
    if "$ref" in node and not _is_text(node["$ref"]):
        raise SchemaError("$ref must be a string")
    for key in _LISTS:
        _of(node, key, list, "an array")
    for key in _SCHEMA_LISTS:
        yield from _of(node, key, list, "an array of schemas") or ()
    for key in _SCHEMAS_BY_NAME:
        yield from (_of(node, key, dict, "an object of schemas") or {}).values()
    for key in _SCHEMAS:
        if (value := node.get(key)) is not None:
            yield from value if isinstance(value, list) else (value,)


def _of(node: dict[str, Any], key: str, kind: type, name: str) -> Any:
    value = node.get(key)
    if value is not None and not isinstance(value, kind):
        raise SchemaError(f"{key} must be {name}")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
