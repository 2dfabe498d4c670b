"""What a caller's tool declarations say about arguments: names and types, nothing more."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_CASTS = ("string", "null", "boolean", "integer", "number", "array", "object")


class Tools:
    """The functions a request declared, for typing the arguments of calls that arrive as text."""

    def __init__(self, declared: Sequence[Mapping[str, Any]] = ()) -> None:
        self._parameters: dict[str, Mapping[str, Any]] = {}
        for tool in declared:
            function = tool.get("function")
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                parameters = function.get("parameters")
                self._parameters[function["name"]] = parameters if isinstance(parameters, Mapping) else {}

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def types(self, function: str, argument: str) -> frozenset[str]:
        """JSON types that the schema allows here; without a schema, text is text."""
        properties = self._parameters.get(function, {}).get("properties")
        schema = properties.get(argument) if isinstance(properties, Mapping) else None
        return _types(schema, self._parameters.get(function, {})) or frozenset({"string"})

    def coerce(self, function: str, argument: str, text: str) -> Any:
        """The value that `text` (an XML parameter) stands for under the schema.

        Text that fits none of the allowed types stays text: the caller's validator should see
        what the model wrote. null needs a schema that allows it.
        """
        types = self.types(function, argument)
        if types == {"string"}:
            return text
        value = _loads(text.strip())
        if value is not _NOTHING and _kind(value) & types:
            return value
        literal = text.strip().lower()
        if "boolean" in types and literal in ("true", "false"):
            return literal == "true"
        if "null" in types and literal in ("null", "none"):
            return None
        return text


_NOTHING = object()


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return _NOTHING


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _kind(value: Any) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"number", "integer"}) if value.is_integer() else frozenset({"number"})
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return frozenset({names.get(type(value), "")})


def _types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The union over `type` (a name or a list), anyOf, oneOf, allOf, enum, const and $ref."""
    if not isinstance(schema, Mapping) or depth > 8:
        return frozenset()
    if isinstance(schema.get("$ref"), str):
        return _types(_resolve(schema["$ref"], root), root, depth + 1)
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared or []
    found = frozenset(name for name in names if name in _CASTS)
    for key in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(key) or ():
            found |= _types(part, root, depth + 1)
    if not found:
        values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
        for value in values:
            found |= _kind(value)
    return found


def _resolve(ref: str, root: Mapping[str, Any]) -> Any:
    node: Any = root
    for part in ref.removeprefix("#/").split("/"):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
