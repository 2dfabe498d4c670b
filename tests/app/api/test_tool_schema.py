"""The JSON Schema of a tool or of a reply: its shape, and the work that it may cause in an engine."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.strict_json import MAX_NODES, MAX_PATTERN_WORK
from app.api.surface import Surface
from app.api.tool_schema import MAX_ALTERNATIVES, MAX_OPTIONAL, pattern_cost
from tests.app.api.test_strict_json import CHAT, MESSAGES, RESPONSES, refusal
from tests.fuzz.steps import Steps

EVERYDAY = [
    r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$",
    r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
    r"^(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$",
    r"^((25[0-5]|(2[0-4]|1\d|[1-9]|)\d)\.?\b){4}$",
    r"^(\([0-9]{3}\))?[0-9]{3}-[0-9]{4}$",
    r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    r"^(AL|AK|AZ|AR|CA|CO|CT|DE|FL|GA|HI|ID|IL|IN|IA|KS|KY|LA|ME|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM|NY)$",
    r"^.{1,1000}$",
    r"^(https?://)?([\w-]+\.)+[\w-]+(/[\w./?%&=-]*)?$",
]
HARMFUL = {
    "optional in a row": "^" + "a?" * 300 + "$",
    "an optional one, repeated": "^(a?){0,300}$",
    "repetitions in a row": "^" + "a{0,10}" * 50 + "$",
    "a repetition of a repetition": "^(a{0,100}){0,100}$",
    "with spaces, as llama.cpp reads it": "^(a{0, 100}){ 0,100}$",
    "with a sign and a rest": "^(a{+0,100x}){0,100}$",
    "a long number": "^(a{0,00000000000100}){0,100}$",
    "the same in many branches": "^(" + "|".join("a" * 90) + ")*$",
    "optional ones, repeated": "^(" + "a?" * 62 + ")*$",
    "groups in groups": "^" + "(" * 40 + "a" + "?)?" * 40 + ")*" * 4 + "a{0,9999}{0,9999}",
    "behind an empty class": "[](a{0,100}){0,100}]",
    "behind an escape": r"\((a{0,100}){0,100}",
    "without ends": "(a{0,100}){0,100}",
    "a group that is not closed": "(((a{0,100}){0,100}",
    "a group that captures nothing": "(?:(?:a{0,100}){0,100})",
    "a named group": "(?<n>(?<m>a{0,100}){0,100})",
}  # fmt: skip


@pytest.mark.parametrize("pattern", EVERYDAY)
def test_what_people_write_costs_little(pattern: str) -> None:
    assert pattern_cost(pattern) < MAX_PATTERN_WORK / 2


@pytest.mark.parametrize("pattern", HARMFUL.values(), ids=HARMFUL)
def test_what_stops_an_engine_costs_too_much(pattern: str) -> None:
    assert pattern_cost(pattern) > MAX_PATTERN_WORK


@given(st.text(alphabet="ab(){}[]|*+?\\,0123456789^$:<>=! \n", max_size=200))
def test_a_group_costs_no_less_than_what_is_in_it(pattern: str) -> None:
    """And any text has a cost."""
    assert pattern_cost(pattern) >= len(pattern)
    assert pattern_cost("(ab{9}|c?)" * 9) <= pattern_cost("((ab{9}|c?)" * 9 + ")*" * 9)


@pytest.mark.parametrize("piece", ["(((a{0,9}){0,9}){0,9})", "[[", "(", "{1", "a{", "[\\", "(?", ")|(", "a?"])
def test_counting_is_linear(piece: str) -> None:
    with Steps(100_000) as short:
        pattern_cost(piece * 250)
    with Steps(4 * short.count + 100):
        pattern_cost(piece * 1000)


def declared(schema: Any) -> list[tuple[Surface, dict[str, Any], str]]:
    """A tool with this schema in three APIs, and how each calls it."""
    user = {"role": "user", "content": "Hi"}
    function = {"type": "function", "function": {"name": "f", "parameters": schema}}
    return [
        (CHAT, {"messages": [user], "tools": [function]}, "tools.0.function.parameters"),
        (MESSAGES, {"messages": [user], "max_tokens": 9, "tools": [{"name": "f", "input_schema": schema}]}, "tools.0.input_schema"),
        (RESPONSES, {"input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": schema}]}, "tools.0.parameters"),
    ]  # fmt: skip


def formatted(schema: Any) -> list[tuple[Surface, dict[str, Any], str]]:
    """A reply in this form, in three APIs; two fields in one of them."""
    user = {"role": "user", "content": "Hi"}
    form = {"type": "json_schema", "name": "x", "schema": schema}
    return [
        (CHAT, {"messages": [user], "response_format": {"type": "json_schema", "json_schema": form}}, "response_format"),
        (CHAT, {"messages": [user], "response_format": {"type": "json_object", "schema": schema}}, "response_format"),
        (MESSAGES, {"messages": [user], "max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": schema}}},
         "output_config.format.schema"),
        (RESPONSES, {"input": "Hi", "text": {"format": form}}, "response_format"),
    ]  # fmt: skip


def optional(count: int, required: int = 0) -> dict[str, Any]:
    """An object of so many properties, the first of which are required."""
    names = [f"p{i}" for i in range(count)]
    return {"type": "object", "properties": dict.fromkeys(names, {}), "required": names[:required]}


def chain(length: int, alternatives: list[Any]) -> dict[str, Any]:
    """Each definition is one of these alternatives, in which NEXT is the next one."""
    text = json.dumps({"anyOf": alternatives})
    definitions = {f"d{i}": json.loads(text.replace("NEXT", f"#/$defs/d{i + 1}")) for i in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{length}": {"type": "string"}}}


def union(*alternatives: Any) -> dict[str, Any]:
    """A union to which its alternatives refer as to THERE."""
    whole: dict[str, Any] = {"$ref": "THERE", "$defs": {"a": {"anyOf": alternatives}}}
    return dict(json.loads(json.dumps(whole).replace("THERE", "#/$defs/a")))


def tagged(kind: Any) -> dict[str, Any]:
    """An object with a value of its own that goes on in itself."""
    properties = {"a": {"$ref": "THERE"}, "kind": {"const": kind}}
    return {"type": "object", "properties": properties, "required": ["a", "kind"]}


NEXT, THERE = {"$ref": "NEXT"}, {"$ref": "THERE"}
SCHEMAS: dict[str, Any] = {
    "anyOf is no list": {"anyOf": 5},
    "deep inside": {"properties": {"a": {"items": {"anyOf": [{"properties": {"b": {"oneOf": 1}}}]}}}},
    "type is a number": {"properties": {"a": {"type": 5}}},
    "type lists a number": {"type": ["string", 5]},
    "$ref is no text": {"$ref": 5},
    "a schema is a number": {"items": [{}, 5]},
    "items is a text": {"items": "string"},
}
FINE: dict[str, Any] = {
    "nothing": {},
    "properties named like keywords": {"properties": {"anyOf": {"type": "integer"}, "enum": {}, "$ref": {}}},
    "data that looks like a schema": {"enum": [{"anyOf": 5}], "const": {"properties": 5}, "default": {"type": 5}},
    "itself": {"properties": {"a": {"$ref": "#"}}},
    "anything and nothing": {"additionalProperties": False, "properties": {"a": True}},
    "a tuple": {"items": [{"type": "string"}, {}], "prefixItems": [{}]},
    "the issue's": {"a": {"anyOf": [{"$ref": "#/properties/a"}] * 32}},
}  # fmt: skip


TOO_LARGE: dict[str, Any] = {
    "many schemas of nothing": {"allOf": [{}] * MAX_NODES},
    "many ways to match": {"properties": {"a": {"type": "string", "pattern": "^(a{0,2000}){0,2000}$"}}},
    "a long pattern": {"items": {"pattern": "a" * (MAX_PATTERN_WORK + 1)}},
    "many optional properties": {"items": optional(MAX_OPTIONAL + 1)},
    "many references to a long list": {
        "allOf": [{"$ref": "#/$defs/a"}] * 30,
        "$defs": {"a": {"required": ["a"] * 999}},
    },
}


MANY_WAYS: dict[str, Any] = {
    "a chain that is too long": chain(70, [NEXT, {"type": "null"}]),
    "many references to the next": chain(12, [NEXT] * 2),
    "in a property": {**chain(8, [NEXT] * 9), "$ref": "#/$defs/d8", "properties": {"a": {"$ref": "#/$defs/d0"}}},
    "unions in unions": chain(5, [{"oneOf": [NEXT] * 4}, {"anyOf": [NEXT] * 5}]),
    "objects in objects": chain(12, [{**tagged(k), "properties": {"a": NEXT, "kind": {"const": k}}} for k in range(6)]),
    "tuples that go on in themselves": union(*[{"prefixItems": [THERE, {"const": i}]} for i in range(8)]),
    "lists that go on in themselves": union(*[{"type": "array", "items": THERE, "maxItems": i} for i in (2, 3)]),
    "objects that go on in themselves": union(tagged("x"), tagged("y")),
    "over a detour": union(tagged("x"), {"anyOf": [{"type": "string"}, {"allOf": [{"$ref": "#/$defs/a/anyOf/0"}]}, tagged("y")]}),
    "any properties, and one of them": union({"type": "object", "additionalProperties": THERE}, tagged("x")),
    "objects, one of which does not say so": union(tagged("x"), {"properties": {"kind": {}, "a": THERE}}),
    "two types of one kind": {"type": ["object", "object"], "properties": {"a": {"$ref": "#"}}},
    "many values": {"items": {"enum": [1] * (MAX_ALTERNATIVES + 1)}},
    "many types": {"properties": {"a": {"type": ["string", "null"] * 513}}},
    "more types than there are": {"type": [f"t{i}" for i in range(8)]},
}  # fmt: skip
"""By each of these a llama-server answers nobody for seconds, or never again."""
FEW_WAYS: dict[str, Any] = {
    "1,000 values": {"enum": [f"v{i}" for i in range(1000)]},
    "1,000 values that are defined": {"$ref": "#/$defs/a", "$defs": {"a": {"enum": [f"v{i}" for i in range(1000)]}}},
    "any JSON": union({"type": ["string", "null"]}, {"type": "array", "items": THERE}, {"type": "object", "additionalProperties": THERE}),
    "a linked list": union(tagged("x"), {"type": "null"}),
    "a tree": {"properties": {"type": {"enum": ["div", "p"]}, "children": {"type": "array", "items": {"$ref": "#"}}}},
    "many of a kind": {"items": {"anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}] * 100}},
    "either is required": {"properties": {"a": {"$ref": "#"}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "a base": {"$defs": {"b": {"properties": {"a": {"$ref": "#"}}}}, "allOf": [{"$ref": "#/$defs/b"}], "properties": {"c": {"$ref": "#"}}},
    "nothing is there": {"anyOf": [{"$ref": "#/$defs/none"}, {"$ref": "#/anyOf/7"}, {"$ref": "http://a/b"}]},
    "a long chain": chain(60, [NEXT, {"type": "null"}]),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_has_the_shape_of_one(name: str) -> None:
    for surface, body, param in declared(SCHEMAS[name]):
        assert refusal(surface, {"model": "annie", **body}) == ("invalid_value", param)


@pytest.mark.parametrize("schema", (TOO_LARGE | MANY_WAYS).values(), ids=TOO_LARGE | MANY_WAYS)
def test_a_schema_makes_an_engine_work_so_much_and_no_more(schema: Any) -> None:
    """By a few bytes of these llama-server works for minutes, or for ever, and goes on when its caller has left."""
    for surface, body, param in [*declared(schema), *formatted(schema)]:
        assert refusal(surface, {"model": "annie", **body}) == ("schema_too_large", param)


LARGE = {
    "optional properties": optional(MAX_OPTIONAL),
    "required properties": optional(5000, required=5000 - MAX_OPTIONAL),
    "a long text": {"pattern": "^.{1,2000}$"},
}


@pytest.mark.parametrize("schema", (FINE | FEW_WAYS | LARGE).values(), ids=FINE | FEW_WAYS | LARGE)
def test_any_other_schema_is_served(schema: Any) -> None:
    """What it means is the engine's affair."""
    for surface, body, _ in [*declared(schema), *formatted(schema)]:
        surface.parse(json.dumps({"model": "annie", **body}).encode(), 512)


def test_the_schemas_of_one_request_share_a_budget() -> None:
    half = {"type": "function", "function": {"name": "f", "parameters": {"allOf": [{}] * (MAX_NODES // 2)}}}
    asked = {"model": "annie", "messages": [{"role": "user", "content": "Hi"}], "tools": [half, half]}
    assert refusal(CHAT, asked) == ("schema_too_large", "tools.1.function.parameters")
