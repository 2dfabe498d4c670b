"""The JSON Schema that a caller declares for a tool's arguments: its shape and its size. Pure.

What a keyword means is left to the engine. A keyword of the wrong JSON type is refused here, by name, where
engines differ: one answers 400, another 500, a third ignores it.
"""

from collections.abc import Iterator
from typing import Any

from app.api.strict_json import MAX_NODES, Budget

_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS = ("enum", "required", "examples")


MAX_DEPTH = 64
"""Deepest nesting of JSON in a schema. OpenAI takes 10 levels of objects, two or three of JSON each."""


class SchemaError(ValueError):
    """The schema cannot be one; the message says why."""

    code = "invalid_value"


class SchemaTooLarge(SchemaError):
    """The schema, with the others of its request, has more values or levels than are looked at."""

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
        level = [child for node in level for child in _children(node)]


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
