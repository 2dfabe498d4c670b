"""What a caller's tool declarations say about arguments: names and types, nothing more."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote

from app.stream.json_value import kind_of

MAX_TYPE_NODES = 256
"""Schemas that are looked at for the type of one argument; beyond them it counts as text."""
MAX_WAITING = 4 * MAX_TYPE_NODES
"""And that wait to be looked at, the same ones among them."""

UnaskedCalls = Literal["strip", "text"]
"""What becomes of a call of a tool that the request did not declare: it is dropped, or left as it is."""

_CASTS = ("string", "null", "boolean", "integer", "number", "array", "object")
_UNIONS = ("anyOf", "oneOf", "allOf")
_TEXT = frozenset({"string"})
_INTEGER = re.compile(r"-?[0-9]+")
_MAX_FLOAT_CHARS = 400
"""Longest number that is converted to see whether it is whole; a float has 309 digits at most."""


class Tools:
    """The functions a request declared, for typing the arguments of calls that arrive as text."""

    def __init__(self, declared: Sequence[Mapping[str, Any]] = ()) -> None:
        self._parameters: dict[str, Mapping[str, Any]] = {}
        self._types: dict[tuple[str, str], frozenset[str]] = {}  # what was asked for before
        for tool in declared:
            function = tool.get("function")
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                parameters = function.get("parameters")
                self._parameters[function["name"]] = parameters if isinstance(parameters, Mapping) else {}

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __bool__(self) -> bool:
        return bool(self._parameters)

    def types(self, function: str, argument: str) -> frozenset[str]:
        """JSON types that the schema allows here; without a schema, text is text."""
        root = self._parameters.get(function, {})
        properties = root.get("properties")
        if not isinstance(properties, Mapping) or argument not in properties:
            return _TEXT
        known = self._types.get((function, argument))
        if known is None:
            known = self._types[function, argument] = self._union(properties[argument], root) or _TEXT
        return known

    def _union(self, schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
        """The types over anyOf, oneOf, allOf and $ref.

        Each node is looked at once, whatever refers to it; what is malformed says nothing.
        """
        found: set[str] = set()
        values: set[str] = set()  # types of enum and const: they count where no type is given
        waiting, seen = [schema], set[int]()
        while waiting:
            schema = waiting.pop()
            if not isinstance(schema, Mapping) or id(schema) in seen:
                continue
            seen.add(id(schema))
            if len(seen) > MAX_TYPE_NODES or len(waiting) > MAX_WAITING:
                return frozenset()
            if isinstance(schema.get("$ref"), str):
                waiting.append(resolve(schema["$ref"], root))
                continue
            parts = [part for key in _UNIONS for part in _list(schema.get(key))[:MAX_TYPE_NODES]]
            found.update(_declared(schema))
            if not parts and "type" not in schema:
                values.update(kind for value in _enumerated(schema) for kind in _value_kinds(value))
            waiting += parts
        return frozenset(found or values)

    def encode(self, function: str, argument: str, text: str) -> str:
        """The JSON that `text` (an XML parameter) stands for under the schema.

        JSON of an allowed type is kept to the letter: no number is converted. Text that fits none
        of the allowed types becomes a string: the caller's validator should see what the model
        wrote. null needs a schema that allows it.
        """
        types = self.types(function, argument)
        bare = text.strip()
        if types != _TEXT:
            if _kinds(bare) & types:
                return bare
            literal = bare[:6].lower()
            if "boolean" in types and literal in ("true", "false"):
                return literal
            if "null" in types and literal in ("null", "none"):
                return "null"
        return json.dumps(text, ensure_ascii=False)


def _kinds(text: str) -> frozenset[str]:
    """The types that a JSON text is of: a whole number is an integer too."""
    kind = kind_of(text)
    if kind == "number" and _is_whole(text):
        return frozenset({"integer", "number"})
    return frozenset({kind})


def _is_whole(number: str) -> bool:
    if _INTEGER.fullmatch(number):
        return True
    return len(number) <= _MAX_FLOAT_CHARS and float(number).is_integer()


def _value_kinds(value: Any) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"number", "integer"}) if value.is_integer() else frozenset({"number"})
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return frozenset({names.get(type(value), "")})


def _declared(node: Mapping[str, Any]) -> Iterator[str]:
    declared = node.get("type")
    for name in [declared] if isinstance(declared, str) else _list(declared):
        if name in _CASTS:
            yield name


def _enumerated(node: Mapping[str, Any]) -> Sequence[Any]:
    return _list(node.get("enum"))[:MAX_TYPE_NODES] or ([node["const"]] if "const" in node else [])


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def resolve(ref: str, root: Mapping[str, Any]) -> Any:
    """What a JSON pointer in a URI fragment stands for (RFC 6901, section 6); None if for nothing."""
    if not ref.startswith("#"):
        return None
    node: Any = root
    for part in unquote(ref[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(name)
        elif isinstance(node, list) and name.isdecimal() and len(name) < 6 and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node
