"""What a caller's tool declarations say about arguments: names and types, nothing more."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote

from app.stream.json_value import kind_of

MAX_TYPE_NODES = 64
"""Schemas that are looked at for the type of one argument; beyond them it counts as text."""

UnaskedCalls = Literal["strip", "text"]
"""What becomes of a call of a tool that the request did not declare: it is dropped, or left as it is."""

_TYPES = ("string", "null", "boolean", "integer", "number", "array", "object")
_UNIONS = ("anyOf", "oneOf", "allOf")
_TEXT = frozenset({"string"})


class Tools(dict[str, Any]):
    """The functions a request declared, by name, for typing the arguments of calls that arrive as text."""

    def __init__(self, declared: Sequence[Mapping[str, Any]] = ()) -> None:
        functions = [tool["function"] for tool in declared]
        super().__init__({function["name"]: function.get("parameters") for function in functions})

    def types(self, function: str, argument: str) -> frozenset[str]:
        """JSON types that the schema allows here; without a schema, text is text."""
        root = self.get(function)
        properties = root.get("properties") if isinstance(root, Mapping) else None
        if not isinstance(properties, Mapping) or argument not in properties:
            return _TEXT
        return _types_of(properties[argument], root) or _TEXT

    def encode(self, function: str, argument: str, text: str) -> str:
        """The JSON that `text` (an XML parameter) stands for under the schema.

        JSON of an allowed type is kept to the letter. Text that fits none of them becomes a string: the caller's validator
        should see what the model wrote.
        """
        types = self.types(function, argument)
        bare = text.strip()
        if types != _TEXT:
            kind = kind_of(bare)
            if kind in types or (kind == "integer" and "number" in types):
                return bare
            literal = bare[:6].lower()
            if "boolean" in types and literal in ("true", "false"):
                return literal
            if "null" in types and literal in ("null", "none"):
                return "null"
        return json.dumps(text, ensure_ascii=False)


def _types_of(schema: Any, root: Any) -> frozenset[str]:
    """The types over anyOf, oneOf, allOf and $ref, each schema looked at once; what is malformed says nothing."""
    found, seen, waiting = set[str](), set[int](), [schema]
    while waiting and len(seen) <= MAX_TYPE_NODES:
        node = waiting.pop()
        if isinstance(node, Mapping) and id(node) not in seen:
            seen.add(id(node))
            said, ref = node.get("type"), node.get("$ref")
            found |= {name for name in _TYPES if name == said or (isinstance(said, list) and name in said)}
            waiting += [resolve(ref, root)] if isinstance(ref, str) else []
            waiting += [part for key in _UNIONS if isinstance(parts := node.get(key), list) for part in parts]
    return frozenset() if waiting else frozenset(found)


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
